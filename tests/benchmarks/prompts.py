"""How well a language model decomposes and verifies by the shipped prompts, and what it costs.

    python -m tests.benchmarks.prompts JUDGE [--rows N] [--verify PROMPT] [--decompose PROMPT]

JUDGE is a model as litellm names it, or settings in YAML: `'{model: hosted_vllm/Qwen/Qwen3-8B,
api_base: "http://127.0.0.1:8000/v1"}'`. Its verdicts are compared with people's labels of
tests/data/verification, its claims with those that people made of the sentences of
tests/data/decomposition (the measures are those of decomposition.py, odd rows). N rows of each
set, by default 50: about 480 calls. PROMPT is a prompt file of yours, to compare it with the
shipped one. A row without a verdict, or without claims, is counted as failed and left out.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml

from claimflow.flows.api import run_pipeline
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store
from tests.benchmarks.agreement import MEASURES, Judged, print_agreement, samples_of, thinned
from tests.benchmarks.decomposition import FOLDER, SETS, Figures, compare
from tests.benchmarks.labelled_pairs import LabelledPair, read_labelled


class Asked(NamedTuple):
    """The rows of a query on a run, and what the run cost."""

    rows: list[tuple[Any, ...]]
    calls: int
    prompt_tokens: int
    completion_tokens: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each data set."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("judge", type=yaml.safe_load, metavar="JUDGE")
    options.add_argument("--rows", type=int, default=50, metavar="N")
    options.add_argument("--verify", type=Path, metavar="PROMPT")
    options.add_argument("--decompose", type=Path, metavar="PROMPT")
    chosen = options.parse_args(arguments)
    judge = {"model": chosen.judge} if isinstance(chosen.judge, str) else chosen.judge
    verify(judge, chosen.rows, _own(chosen.verify))
    decompose(judge, chosen.rows, _own(chosen.decompose))


def _own(prompt: Path | None) -> dict[str, str]:
    return {} if prompt is None else {"prompt": str(prompt.resolve())}


def verify(judge: Mapping[str, Any], rows: int, prompt: Mapping[str, str]) -> None:
    """Print the agreement of its verdicts with people's labels."""
    by_family: dict[str, list[LabelledPair]] = {}
    for row in read_labelled():
        by_family.setdefault(row.family, []).append(row)
    chosen = [row for family in by_family.values() for row in thinned(family, rows)]
    steps = {
        "response_claims": {"use": "supplied_claims", "of": "response"},
        "verdicts": {
            **{"use": "verify_claims", "claims": "response_claims", "against": "reference"},
            **prompt,
        },
    }
    query = (
        "SELECT sample_id, verdict FROM latest.verdicts JOIN latest.claims USING (claim_id) "
        "WHERE verdict IS NOT NULL ORDER BY sample_id::INT"
    )
    asked = ask(judge, samples_of(chosen), steps, query)
    judged = [Judged(chosen[int(n)], verdict == "entailed", 0.0) for n, verdict in asked.rows]
    print(f"{'pairs':22}{'n':>6}{'entailed':>10}" + "".join(f"{name:>24}" for name in MEASURES))
    for family in by_family:
        of_family = [one for one in judged if one.row.family == family]
        if of_family:
            print_agreement(family, of_family)
    if judged:
        print_agreement("all", judged)
    print_cost(asked, len(chosen), len(chosen) - len(judged))


def decompose(judge: Mapping[str, Any], rows: int, prompt: Mapping[str, str]) -> None:
    """Print how its claims compare with those that people made."""
    sentences = []
    for name in SETS:
        lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        sentences += [
            (name, row) for row in thinned([json.loads(one) for one in lines[1::2]], rows)
        ]
    steps = {
        "response_claims": {
            **{"use": "decompose_claims", "of": "response"},
            **{"atomicity": "high", "coverage": "high", **prompt},
        }
    }
    samples = (
        {"sample_id": str(n), "response": row.get("decontextualised") or row["sentence"]}
        for n, (_, row) in enumerate(sentences)
    )
    query = (
        "SELECT sample_id, list(claim ORDER BY start) FROM latest.claims "
        "WHERE claim IS NOT NULL GROUP BY sample_id"
    )
    asked = ask(judge, samples, steps, query)
    claims = {int(n): found for n, found in asked.rows}
    print(f"\n{'sentences':18}{'n':>5}{'ours':>7}{'human':>7}{'covered':>9}{'precise':>9}")
    for name in SETS:
        places = [n for n, (of, _) in enumerate(sentences) if of == name and n in claims]
        if places:
            of_set = [sentences[n][1] for n in places]
            print_figures(name, compare(of_set, [claims[n] for n in places], 0.0))
    print_cost(asked, len(sentences), len(sentences) - len(claims))


def print_figures(name: str, found: Figures) -> None:
    """A line of the table of decomposition."""
    print(
        f"{name:18}{found.sentences:5}{found.ours / found.sentences:7.2f}"
        f"{found.human / found.sentences:7.2f}{found.covered / found.human:9.1%}"
        f"{found.precise / found.ours:9.1%}"
    )


def print_cost(asked: Asked, rows: int, failed: int) -> None:
    """What a row cost, and how many have no result."""
    print(
        f"{failed} of {rows:,} failed; a row took {asked.calls / rows:.2f} calls, "
        f"{asked.prompt_tokens / rows:,.0f} tokens in and {asked.completion_tokens / rows:,.0f} out"
    )


def ask(
    judge: Mapping[str, Any],
    samples: Iterable[Mapping[str, Any]],
    steps: Mapping[str, Any],
    query: str,
) -> Asked:
    """Run steps with a judge on samples, and query the store of the run."""
    pipeline = {
        "name": "prompts",
        "samples": {"path": "samples.jsonl"},
        "store": "s.duckdb",
        "judge": dict(judge),
        "fail_when": "never",
        "steps": dict(steps),
    }
    quiet = StringIO()
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(quiet):
        lines = "".join(json.dumps(sample) + "\n" for sample in samples)
        Path("samples.jsonl").write_text(lines, "utf-8")
        Path("p.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")
        store = Store(Path("s.duckdb"))
        with redirect_stderr(quiet):
            run_pipeline(prepare("p.yaml"), store)
        cost = "SELECT count(*), sum(prompt_tokens), sum(completion_tokens) FROM audit.calls"
        with store.reading() as connection:
            found = read_table(connection, query).rows()
            calls, prompt, completion = read_table(connection, cost).row(0)
    return Asked(found, calls, int(prompt or 0), int(completion or 0))


if __name__ == "__main__":
    main()
