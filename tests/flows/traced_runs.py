"""Runs whose samples come from traces, for tests of what is sent."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claimflow.flows.api import run_pipeline
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, claim_id, put_run

PROMPT = "Judge each claim."
JUDGE = {"llm": {"model": "openai/strict", "api_base": "http://judge", "temperature": 0}}


def trace(number: int) -> str:
    return f"{number + 1:032x}"


def span(number: int) -> str:
    return f"{number + 1:016x}"


def traced(name: str, number: int, **more: Any) -> dict[str, Any]:
    """A sample of a trace."""
    return {
        "sample_id": name,
        "response": f"{name} is red.",
        "metadata": f'{{"trace_id": "{trace(number)}", "span_id": "{span(number)}"}}',
    } | more


def score(name: str, value: float | None, status: str = "scored") -> dict[str, Any]:
    reason = None if status == "scored" else f"because it is {status}"
    row = {"sample_id": name, "metric": "faithfulness", "score": value, "status": status}
    return row | {"reason": reason}


def put_traced(
    store: Store,
    samples: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    *,
    pipeline: str = "p",
) -> str:
    """A run in which a judge calls the claim of every sample neutral."""
    names = [str(one["sample_id"]) for one in samples]
    claims = [
        {
            "claim_id": claim_id(name, f"{name} is red."),
            "sample_id": name,
            "of": "response",
            "claim": f"{name} is red.",
        }
        for name in names
    ]
    verdicts = [
        {"claim_id": one["claim_id"], "against": "reference", "verdict": "neutral"}
        for one in claims
    ]
    run_id = put_run(
        store,
        {
            "samples": Table("samples", samples),
            "claims": Table("claims", claims),
            "verdicts": Table("verdicts", verdicts, tools=JUDGE, settings={"prompt": PROMPT}),
            "faithfulness": Table("scores", scores),
        },
        pipeline=pipeline,
    )
    # The scores were made from the verdicts.
    with store.writing() as connection:
        connection.execute(
            "UPDATE audit.artifacts SET inputs = json_object('verdicts', (SELECT artifact_id "
            "FROM audit.run_steps WHERE run_id = $run AND step = 'verdicts')) "
            "WHERE run_id = $run AND kind = 'scores'",
            {"run": run_id},
        )
    return run_id


def run_embedded(folder: Path) -> Store:
    """A run with the embedded judge, parser and encoder, over one traced sample."""
    sample = traced("good", 0, retrieved_contexts=["good is red."], reference="good is green.")
    sample["metadata"] = json.loads(sample["metadata"])
    steps = {
        "response_claims": {"use": "decompose_claims", "of": "response", "atomicity": "high"},
        "response_in_contexts": {
            "use": "verify_claims",
            "claims": "response_claims",
            "against": "retrieved_contexts",
        },
        "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
        "faithfulness": {"use": "faithfulness"},
        "semantic_similarity": {"use": "semantic_similarity"},
    }
    pipeline = {"name": "p", "store": folder / "embedded.duckdb", "steps": steps}
    prepared = prepare(pipeline | {"read_copy": False}, answers=[sample])
    run_pipeline(prepared)
    return prepared.store


def put_many(folder: Path, count: int, *, pipeline: str = "p") -> tuple[Store, str]:
    """A run with so many traced samples, all with a score."""
    store = Store(folder / "traced.duckdb")
    names = [f"s{number:04}" for number in range(count)]
    samples = [traced(name, number) for number, name in enumerate(names)]
    return store, put_traced(store, samples, [score(n, 0.5) for n in names], pipeline=pipeline)
