"""Load of `claimflow receive`: spans a second, its CPU time, latency and memory.

    python -m tests.benchmarks.receive [SPANS] [--rate R] [--batch N] [--senders N] [--json]

A process of its own sends SPANS spans (60,000 when left out) of calls of a model, of about 1.5 KB,
in batches of 100 by four connections: as fast as they are answered, or at R spans a second. Then
what is stored is read back, and every span must be there.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from claimflow.flows.traces import protobuf
from claimflow.flows.traces.reader import read_traces
from tests.benchmarks.measuring import process_cpu, process_memory
from tests.flows.receiving import JSON, PROTOBUF, export, receiver_process

WORDS = "tin is a soft metal that melts at low heat and resists water and air for years".split()
LETTERS = 1_100
VARIANTS = 20


def send(options: argparse.Namespace) -> None:
    """Send, and print the seconds of every request as JSON."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=LETTERS // 5)) for _ in range(VARIANTS)]
    batches = []
    for first in range(0, options.spans, options.batch):
        numbers = range(first, min(options.spans, first + options.batch))
        content = export(numbers, text=texts[first // options.batch % VARIANTS]).SerializeToString()
        if options.json:
            content = json.dumps(protobuf.decode("traces", content)).encode()
        batches.append(content)
    began = time.perf_counter()

    def sender(place: int) -> list[float]:
        connection = HTTPConnection(urlsplit(options.url).netloc)
        seconds = []
        for number in range(place, len(batches), options.senders):
            if options.rate:
                due = began + number * options.batch / options.rate
                time.sleep(max(0.0, due - time.perf_counter()))
            start = time.perf_counter()
            headers = {"Content-Type": JSON if options.json else PROTOBUF}
            connection.request("POST", "/v1/traces", batches[number], headers)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise SystemExit(f"answered {response.status}")
            seconds.append(time.perf_counter() - start)
        return seconds

    with ThreadPoolExecutor(options.senders) as threads:
        latencies = [one for found in threads.map(sender, range(options.senders)) for one in found]
    took = time.perf_counter() - began
    size = sum(map(len, batches))
    print(json.dumps({"took": took, "latencies": latencies, "bytes": size}))


def measure(options: argparse.Namespace) -> None:
    """Run a receiver and a sender, and print what it took."""
    with tempfile.TemporaryDirectory() as base:
        with receiver_process(Path(base) / "in") as (url, process):
            idle = process_cpu(process.pid)
            command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--url", url]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            busy = process_cpu(process.pid) - idle
            memory = process_memory(process.pid)
        sent = json.loads(done.stdout)
        latencies = sorted(sent["latencies"])
        print(
            f"{options.spans:,} spans of {sent['bytes'] / options.spans:,.0f} bytes: "
            f"{options.spans / sent['took']:,.0f} a second, "
            f"{1000 * busy / options.spans:.3f} ms of CPU a span ({busy:.1f} s), "
            f"latency p50 {1000 * latencies[len(latencies) // 2]:.0f} ms, "
            f"p99 {1000 * latencies[len(latencies) * 99 // 100]:.0f} ms, "
            f"{memory / 2**20:.0f} MiB"
        )
        # The process was killed: what it answered must be there.
        samples = read_traces(["in/*"], base=Path(base)).samples
        print(f"read back: {samples.count:,} of {options.spans:,}")
        for path in sorted((Path(base) / "in").glob("*")):
            print(f"  {path.name}: {path.stat().st_size / 2**20:.1f} MiB")


def main() -> None:
    """Measure, or be the process that sends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spans", nargs="?", type=int, default=60_000)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url")
    options = parser.parse_args()
    if options.url:
        send(options)
    else:
        measure(options)


if __name__ == "__main__":
    main()
