"""Cost of the LLM judge: calls and tokens per sample, wall time, CPU, memory.

    python -m tests.benchmarks.judge [--samples 500] [--latency 0.2] [--concurrency 64]
        [--repeat 1] [--parts] [--embedder endpoint|embedded] [--ledger] [--ragas PYTHON]

The model is the project's loopback endpoint, in a process of its own whose CPU is not counted.
Measured are factual correctness, answer correctness, context recall and faithfulness together,
a rerun with nothing changed, and with `--parts` each metric alone. Responses and references have
two claims of 11 words each, contexts four sentences. With `--ledger` a run that shares `claimflow
ledger`, whose CPU is printed, and a second machine. With `--ragas` a Python that has ragas
computes its four metrics of these names from the same samples at the same endpoint. Columns:

- `calls`: requests sent, per sample; `in`, `out`: tokens of four characters, per sample;
- `ideal`: calls x latency / concurrency; `start-up`: until the first request;
  `wall`: the whole run; `ratio`: wall / (ideal + start-up);
- `CPU`: of the run's process. Its CPU per call leaves out the cost of start-up and of the steps
  without calls; `litellm` is that of `LitellmProvider.chat` alone with the same concurrency. On a
  shared machine use `--repeat 3`, which takes the least of each.
"""

import argparse
import asyncio
import json
import os
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
MAIN = "import sys; from claimflow.__main__ import main; sys.exit(main())"
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
    """The cost of one run of a pipeline: seconds, MB, and requests."""

    wall: float
    start_up: float
    cpu: float
    peak: float
    calls: int
    prompt_tokens: int
    completion_tokens: int


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


@contextmanager
def shared(folder: Path) -> Iterator[str]:
    """The URL of a shared ledger in a process of its own, whose CPU is printed at the end."""
    command = [sys.executable, "-c", MAIN, "ledger", str(folder / "shared.duckdb"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        print(process.stdout.read().strip(), end="")
        print(
            f"; CPU of the ledger: {used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss >> 10} MB"
        )


def get_json(url: str, path: str) -> Any:
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
                "user_input": f"When was place {number} of the old town opened?",
                "response": text(number, 2),
                "reference": text(number, 2),
                "retrieved_contexts": [text(number, 4)],
            }
            file.write(json.dumps(sample) + "\n")


def write_pipeline(
    folder: Path, url: str, steps: dict[str, Any], options: Any, **more: Any
) -> None:
    judge = {"model": MODEL, "api_base": f"{url}/v1", "max_concurrency": options.concurrency}
    pipeline = {
        "name": "judge",
        "samples": {"path": "samples.jsonl"},
        "store": "store.duckdb",
        "judge": judge,
        **more,
        "steps": steps | {"summary": {"use": "summarize_scores"}},
    }
    if options.embedder == "endpoint":
        embedder = {"provider": "litellm", "model": "hosted_vllm/fake", "api_base": f"{url}/v1"}
        pipeline["embedder"] = embedder
    (folder / "p.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")


def run(folder: Path, url: str) -> Cost:
    """Run the pipeline in `folder` and return its cost."""
    before = get_json(url, "_stats")
    seen = sum(before["by_path"].values())
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    log = folder / "output.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", "p.yaml"], cwd=folder, stdout=output, stderr=output
        )
        peak = Peak(process.pid)
        code = process.wait()
    wall = time.monotonic() - started
    if code != 0:
        raise SystemExit(log.read_text("utf-8"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = get_json(url, "_times")[seen:]
    return Cost(
        wall,
        min((arrived for _, arrived, *_ in times), default=started) - started,
        used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime,
        peak.megabytes(),
        *used_since(url, before),
    )


def used_since(url: str, before: dict[str, Any]) -> tuple[int, int, int]:
    """Chat calls, prompt tokens and completion tokens of the endpoint since `before`."""
    after = get_json(url, "_stats")
    chat = "/v1/chat/completions"
    calls = after["by_path"].get(chat, 0) - before["by_path"].get(chat, 0)
    tokens = (after[name] - before[name] for name in ("prompt_tokens", "completion_tokens"))
    return calls, *tokens


def run_ragas(folder: Path, url: str, options: Any) -> Cost:
    """Compute the metrics of ragas, and return their cost without that of importing ragas."""
    before = get_json(url, "_stats")
    script = Path(__file__).with_name("ragas_peer.py")
    command = [options.ragas, script, folder / "samples.jsonl", url, str(options.concurrency)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    wall, cpu = map(float, done.stdout.split()[-2:])
    return Cost(wall, 0, cpu, float("nan"), *used_since(url, before))


class Peak:
    """The peak resident memory of a process, sampled until it ends."""

    def __init__(self, process: int) -> None:
        self._path = Path(f"/proc/{process}/status")
        self._kilobytes = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def megabytes(self) -> float:
        self._thread.join()
        return self._kilobytes / 1024

    def _sample(self) -> None:
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


def litellm_alone(url: str, options: Any) -> float:
    """CPU milliseconds of a call of `LitellmProvider.chat`, in a process of its own."""
    code = (
        "from tests.benchmarks.judge import send_calls; "
        f"send_calls({url + '/v1'!r}, {options.concurrency})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    return float(done.stdout)


def send_calls(api_base: str, concurrency: int, calls: int = 1000) -> None:
    """Print CPU milliseconds per call, with messages as long as those of the judge."""
    from claimflow.flows.judge.provider import Request, open_provider

    provider = open_provider("litellm")
    system = {"role": "system", "content": (ROOT / "configs/prompts/verify.md").read_text("utf-8")}
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            user = {"role": "user", "content": f"{number} " + "What is said of the old town? " * 20}
            request = Request(MODEL, [system, user], {"temperature": 0}, api_base)
            await provider.chat(request, timeout=60)

    async def measure() -> None:
        await provider.warm_up(MODEL)
        started = time.process_time()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        print((time.process_time() - started) / calls * 1000)
        await provider.close()

    asyncio.run(measure())


def line(name: str, cost: Cost, options: Any) -> None:
    ideal = cost.calls * options.latency / options.concurrency
    ratio = cost.wall / (ideal + cost.start_up) if cost.calls else float("nan")
    calls, sent, received = (used / options.samples for used in cost[4:])
    print(
        f"{name:<22}{calls:>7.2f}{sent:>8,.0f}{received:>7,.0f}"
        f"{ideal:>8.1f}{cost.start_up:>10.1f}{cost.wall:>8.1f}"
        f"{ratio:>7.2f}{cost.cpu:>8.1f}{cost.peak:>9.0f}",
        flush=True,
    )


def main(options: Any) -> None:
    with served(options.latency) as url, tempfile.TemporaryDirectory() as name:
        print(
            f"{options.samples:,} samples, {options.latency * 1000:.0f} ms a reply, "
            f"{options.concurrency} at a time\n"
            f"{'':<22}{'calls':>7}{'in':>8}{'out':>7}{'ideal':>8}{'start-up':>10}"
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
            if options.ragas:
                line("ragas", run_ragas(folder, url, options), options)
        again = run(folder, url)
        line("again, unchanged", again, options)
        if options.ledger:
            with shared(folder) as ledger:
                write_pipeline(folder, url, TOGETHER, options, ledger=ledger)
                line("with a ledger", fresh(folder, url), options)
                line("a second machine", fresh(folder, url), options)
            write_pipeline(folder, url, TOGETHER, options)
        print(f"store: {(folder / 'store.duckdb').stat().st_size / 1e6:.0f} MB")
        if whole.calls:
            alone = min(litellm_alone(url, options) for _ in range(options.repeat))
            start = min(start_cpu(url, folder, options) for _ in range(options.repeat))
            least = min(whole.cpu for whole in wholes)
            each = (least - start) / whole.calls * 1000
            print(
                f"CPU of a call: {each:.2f} ms, of it litellm {alone:.2f} ms "
                f"({start:.1f} s of start-up and of steps without calls left out)"
            )


def fresh(folder: Path, url: str) -> Cost:
    """Run the pipeline in `folder` with an empty store."""
    (folder / "store.duckdb").unlink(missing_ok=True)
    return run(folder, url)


def start_cpu(url: str, folder: Path, options: Any) -> float:
    """CPU seconds of start-up: of a run on the first sample only."""
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
    parser.add_argument("--repeat", type=int, default=1, help="runs, of which the least CPU counts")
    parser.add_argument("--parts", action="store_true", help="each metric alone as well")
    parser.add_argument("--ledger", action="store_true", help="also with a shared ledger")
    parser.add_argument("--ragas", metavar="PYTHON", help="an interpreter that has ragas")
    main(parser.parse_args())
