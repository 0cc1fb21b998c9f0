"""Verdicts on 30,000 claims while a quarter of the replies is faulty.

    python -m tests.benchmarks.chaos [--premises 3000] [--share 0.25] [--concurrency 64]

Each premise is asked with ten claims in one call. Claims come from the rules of
`decompose_claims` (one for each sentence), verdicts from the project's loopback endpoint in its
chaos mode, in a process of its own. Every verdict is compared with the one that the endpoint
gives without faults, which follows from premise and claim alone.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store
from tests.benchmarks.judge import (
    MAIN,
    MODEL,
    Peak,
    get_json,
    served,
)
from tests.endpoint.judge import verdict

ROOT = Path(__file__).parents[2]


CLAIMS = 10
PLACES = "tower bridge museum garden castle library station harbour market school".split()
DEEDS = "opened closed burned moved reopened".split()


def write_samples(path: Path, count: int) -> None:
    """Premises of ten sentences, with a claim on each that is entailed, contradicted or neutral."""
    drawn = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            sentences = [
                f"The {place} of quarter {number} {drawn.choice(DEEDS)} in "
                f"{drawn.randint(1800, 2020)}."
                for place in PLACES
            ]
            claims = [_claim(drawn, sentence) for sentence in sentences]
            sample = {"sample_id": f"s{number}", "reference": " ".join(sentences)}
            file.write(json.dumps(sample | {"response": " ".join(claims)}) + "\n")


def _claim(drawn: random.Random, sentence: str) -> str:
    kind = drawn.randrange(3)
    if kind == 0:
        return sentence
    if kind == 1:
        return sentence[:-5] + f"{int(sentence[-5:-1]) - 300}."
    return sentence.replace("The ", "The enormous marble ", 1)


def write_pipeline(folder: Path, url: str, options: Any) -> None:
    verify = {"use": "verify_claims", "claims": "claims", "against": "reference"}
    pipeline = {
        "name": "chaos",
        "samples": {"path": "samples.jsonl"},
        "store": "store.duckdb",
        "judge": {
            "model": MODEL,
            "api_base": f"{url}/v1",
            "max_concurrency": options.concurrency,
            "timeout": options.timeout,
        },
        "steps": {
            "claims": {"use": "decompose_claims", "of": "response", "judge": "embedded"},
            "verdicts": {**verify, "claims_per_call": CLAIMS},
        },
    }
    (folder / "p.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")


def main(options: Any) -> None:
    hangs = ["--hangs"] if options.hangs else []
    more = ["--chaos", str(options.share), *hangs]
    with served(options.latency, *more) as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(folder / "samples.jsonl", options.premises)
        write_pipeline(folder, url, options)
        run(folder, url)
        judge(folder, options)


def run(folder: Path, url: str) -> None:
    started = time.monotonic()
    command = [sys.executable, "-c", MAIN, "run", "p.yaml"]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        peak = Peak(process.pid)
        code = process.wait()
    if code not in (0, 1):
        raise SystemExit((folder / "output.txt").read_text("utf-8"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    stats = get_json(url, "_stats")
    print(
        f"exit code {code}, {time.monotonic() - started:.0f} s, "
        f"{used.ru_utime + used.ru_stime:.0f} CPU seconds, peak {peak.megabytes():.0f} MB, "
        f"{stats['hits']:,} requests of which {sum(stats['by_fault'].values()):,} met a fault"
    )
    for fault, count in sorted(stats["by_fault"].items()):
        print(f"  {fault:<24}{count:>6,}")


def judge(folder: Path, options: Any) -> None:
    """Print the numbers of right and wrong verdicts and of error rows; exit 1 if any is wrong."""
    with Store(folder / "store.duckdb").reading() as connection:
        found = read_table(
            connection,
            "SELECT reference, claim, verdict, verdicts.status, verdicts.failure, verdicts.reason "
            "FROM claims JOIN verdicts USING (run_id, claim_id) "
            "JOIN samples USING (run_id, sample_id)",
        )
        outcomes = read_table(connection, "SELECT outcome FROM audit.calls")["outcome"]
    judged = found.filter(status="judged")
    verdicts = judged.select("reference", "claim", "verdict").iter_rows()
    wrong = sum(verdict(premise, claim) != found for premise, claim, found in verdicts)
    failed = found.filter(status="failed")
    unexplained = failed.filter(pl.col("failure").is_null() | pl.col("reason").is_null()).height
    print(
        f"{options.premises * CLAIMS:,} claims: {judged.height:,} verdicts "
        f"({dict(judged['verdict'].value_counts(sort=True).iter_rows())}), {wrong} of them wrong, "
        f"{failed.height:,} error rows, {unexplained} of them without a reason, "
        f"{options.premises * CLAIMS - found.height} missing"
    )
    print(f"  error rows: {dict(failed['failure'].value_counts(sort=True).iter_rows())}")
    print(f"  calls: {dict(Counter(outcomes).most_common())}")
    if wrong or unexplained or found.height != options.premises * CLAIMS:
        raise SystemExit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--premises", type=int, default=3000)
    parser.add_argument("--share", type=float, default=0.25, help="of the replies, faulty")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of a reply")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds of an attempt")
    parser.add_argument("--hangs", action="store_true", help="some requests are never answered")
    main(parser.parse_args())
