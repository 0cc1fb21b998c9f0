"""What the LLM judge costs beside the model: calls a sample, wall time, CPU, memory.

    python -m tests.benchmarks.judge [--samples 500] [--latency 0.2] [--concurrency 64]
        [--repeat 1] [--parts] [--embedder endpoint|embedded]

The model is the project's own loopback endpoint, a process of its own whose CPU is not
counted. Factual correctness, answer correctness, context recall and faithfulness together,
once more with nothing changed, and with `--parts` each alone. Responses and references
have two claims of 11 words each, contexts four sentences. Columns:

- `calls/sample`: requests sent;
- `ideal`: calls x latency / concurrency; `start-up`: until the first request;
  `wall`: the whole run; `ratio`: wall / (ideal + start-up);
- `CPU`: of our process, and for a call without what a run of the same samples costs that
  asks nothing; `litellm`: of a call of `transport.send` alone, as many at a time. On a
  machine that others use as well, `--repeat 3` and the least of each say more.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import yaml

ROOT = Path(__file__).parents[2]
MAIN = "import sys; from claimflow.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"
MODEL = "openai/fake"
PLACES = "tower bridge museum garden castle library station harbour market school".split()

DECOMPOSE = {"use": "decompose_claims"}
RESPONSE = {"response_claims": DECOMPOSE | {"of": "response"}}
REFERENCE = {"reference_claims": DECOMPOSE | {"of": "reference"}}


def verify(claims: str, against: str) -> dict[str, Any]:
    return {"use": "verify_claims", "claims": claims, "against": against}


BOTH = {
    **RESPONSE,
    **REFERENCE,
    "response_in_reference": verify("response_claims", "reference"),
    "reference_in_response": verify("reference_claims", "response"),
}
METRICS: dict[str, dict[str, Any]] = {
    "factual correctness": {**BOTH, "factual_correctness": {"use": "factual_correctness"}},
    "answer correctness": {
        **BOTH,
        "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
        "answer_correctness": {"use": "answer_correctness"},
    },
    "context recall": {
        **REFERENCE,
        "reference_in_contexts": verify("reference_claims", "retrieved_contexts"),
        "context_recall": {"use": "context_recall"},
    },
    "faithfulness": {
        **RESPONSE,
        "response_in_contexts": verify("response_claims", "retrieved_contexts"),
        "faithfulness": {"use": "faithfulness"},
    },
}
TOGETHER = {name: step for steps in METRICS.values() for name, step in steps.items()}


class Cost(NamedTuple):
    """Of one run of a pipeline: seconds, MB, and requests."""

    wall: float
    start_up: float
    cpu: float
    peak: float
    calls: int
    embedding_calls: int


@contextmanager
def served(latency: float, *options: str) -> Iterator[str]:
    """The URL of an endpoint in a process of its own."""
    command = [sys.executable, "-m", "tests.endpoint", "--latency", str(latency), *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def told(url: str, path: str) -> Any:
    with urlopen(f"{url}/{path}") as reply:
        return json.load(reply)


def write_samples(path: Path, count: int) -> None:
    drawn = random.Random(0)

    def text(number: int, sentences: int) -> str:
        return " ".join(
            f"The {drawn.choice(PLACES)} {number} of the old town was opened in "
            f"{drawn.randint(1800, 2020)}."
            for _ in range(sentences)
        )

    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            sample = {
                "sample_id": f"s{number}",
                "response": text(number, 2),
                "reference": text(number, 2),
                "retrieved_contexts": [text(number, 4)],
            }
            file.write(json.dumps(sample) + "\n")


def write_pipeline(folder: Path, url: str, steps: dict[str, Any], options: Any) -> None:
    judge = {"model": MODEL, "api_base": f"{url}/v1", "max_concurrency": options.concurrency}
    pipeline = {
        "name": "judge",
        "samples": {"path": "samples.jsonl"},
        "store": "store.duckdb",
        "judge": judge,
        "steps": steps | {"summary": {"use": "summarize_scores"}},
    }
    if options.embedder == "endpoint":
        embedder = {"provider": "litellm", "model": "hosted_vllm/fake", "api_base": f"{url}/v1"}
        pipeline["embedder"] = embedder
    (folder / "p.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")


def run(folder: Path, url: str) -> Cost:
    """Run the pipeline in `folder`; what it cost."""
    before = told(url, "_stats")["by_path"]
    seen = sum(before.values())
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    said = folder / "said.txt"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", "p.yaml"], cwd=folder, stdout=output, stderr=output
        )
        peak = Peak(process.pid)
        code = process.wait()
    wall = time.monotonic() - started
    if code != 0:
        raise SystemExit(said.read_text("utf-8"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = told(url, "_stats")["by_path"]
    sent = {path: count - before.get(path, 0) for path, count in after.items()}
    times = told(url, "_times")[seen:]
    return Cost(
        wall,
        min((arrived for _, arrived, *_ in times), default=started) - started,
        used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime,
        peak.megabytes(),
        sent.get("/v1/chat/completions", 0),
        sent.get("/v1/embeddings", 0),
    )


class Peak:
    """The highest resident memory of one process, looked at as long as it lives."""

    def __init__(self, process: int) -> None:
        self._path = Path(f"/proc/{process}/status")
        self._kilobytes = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def megabytes(self) -> float:
        self._thread.join()
        return self._kilobytes / 1024

    def _look(self) -> None:
        while True:
            try:
                lines = self._path.read_text().splitlines()
            except OSError:
                return
            found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
            if not found:
                return
            self._kilobytes = max(self._kilobytes, *found)
            time.sleep(0.05)


SEND = """
import asyncio, json, sys, time
from claimflow.flows.judge.transport import Request, close, send, warm
model, base, calls, at_once = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
body = json.loads(sys.argv[5])

async def main():
    await warm(model)
    left = iter(range(calls))
    async def work():
        for number in left:
            messages = [body[0], {**body[1], "content": f"{number} {body[1]['content']}"}]
            await send(Request(model, messages, {"temperature": 0}, base), timeout=60)
    started = time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    print((time.process_time() - started) / calls * 1000)
    await close()

asyncio.run(main())
"""


def litellm_alone(url: str, options: Any, *, calls: int = 1000) -> float:
    """CPU milliseconds of `transport.send`, with messages as long as those of the judge."""
    system = (ROOT / "configs/prompts/verify.md").read_text("utf-8")
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "What is said of the old town? " * 20},
    ]
    arguments = [MODEL, f"{url}/v1", str(calls), str(options.concurrency), json.dumps(messages)]
    done = subprocess.run(
        [sys.executable, "-c", SEND, *arguments], cwd=ROOT, check=True, capture_output=True
    )
    return float(done.stdout)


def line(name: str, cost: Cost, options: Any) -> None:
    ideal = cost.calls * options.latency / options.concurrency
    ratio = cost.wall / (ideal + cost.start_up) if cost.calls else float("nan")
    print(
        f"{name:<22}{cost.calls:>8,}{cost.calls / options.samples:>13.2f}"
        f"{cost.embedding_calls:>7}{ideal:>8.1f}{cost.start_up:>10.1f}{cost.wall:>8.1f}"
        f"{ratio:>7.2f}{cost.cpu:>8.1f}{cost.peak:>9.0f}",
        flush=True,
    )


def main(options: Any) -> None:
    with served(options.latency) as url, tempfile.TemporaryDirectory() as name:
        print(
            f"{options.samples:,} samples, {options.latency * 1000:.0f} ms a reply, "
            f"{options.concurrency} at a time\n"
            f"{'':<22}{'calls':>8}{'calls/sample':>13}{'embed':>7}{'ideal':>8}{'start-up':>10}"
            f"{'wall':>8}{'ratio':>7}{'CPU s':>8}{'peak MB':>9}"
        )
        folder = Path(name)
        write_samples(folder / "samples.jsonl", options.samples)
        if options.parts:
            for metric, steps in METRICS.items():
                write_pipeline(folder, url, steps, options)
                line(metric, run(folder, url), options)
                (folder / "store.duckdb").unlink()
        write_pipeline(folder, url, TOGETHER, options)
        wholes = [fresh(folder, url) for _ in range(options.repeat)]
        for whole in wholes:
            line("all four together", whole, options)
        again = run(folder, url)
        line("again, unchanged", again, options)
        print(f"store: {(folder / 'store.duckdb').stat().st_size / 1e6:.0f} MB")
        if whole.calls:
            alone = min(litellm_alone(url, options) for _ in range(options.repeat))
            start = min(start_cpu(url, folder, options) for _ in range(options.repeat))
            least = min(whole.cpu for whole in wholes)
            each = (least - start) / whole.calls * 1000
            print(
                f"CPU of a call: {each:.2f} ms, of it litellm {alone:.2f} ms "
                f"({start:.1f} s of start-up and of steps that ask nothing left aside)"
            )


def fresh(folder: Path, url: str) -> Cost:
    """Run the pipeline in `folder` with nothing on file."""
    (folder / "store.duckdb").unlink(missing_ok=True)
    return run(folder, url)


def start_cpu(url: str, folder: Path, options: Any) -> float:
    """CPU seconds of the run without its calls: one that asks for the first sample only."""
    (folder / "store.duckdb").unlink()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", MAIN, "run", "p.yaml", "--limit", "1"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of a reply")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--embedder", choices=["endpoint", "embedded"], default="endpoint")
    parser.add_argument("--repeat", type=int, default=1, help="the least CPU of so many runs")
    parser.add_argument("--parts", action="store_true", help="each metric alone, too")
    main(parser.parse_args())
