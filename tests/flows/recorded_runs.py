"""Recorded runs for tests: tables of literal rows by step, without running a pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import Artifact, ArtifactWriter, Provenance
from claimflow.flows.store.store import Store
from claimflow.stages.rows import (
    Claim,
    Row,
    RubricVerdict,
    Sample,
    Score,
    SentenceMatch,
    Summary,
    Verdict,
    content_key,
)
from claimflow.stages.tables import build

KINDS: dict[str, type[Row]] = {
    "samples": Sample,
    "claims": Claim,
    "verdicts": Verdict,
    "rubric_verdicts": RubricVerdict,
    "scores": Score,
    "sentence_matches": SentenceMatch,
    "summaries": Summary,
}


class Table:
    """A table of a step: its rows and its provenance."""

    def __init__(self, kind: str, rows: Sequence[Mapping[str, Any]], **made: Any) -> None:
        self.kind = kind
        self.rows = rows
        self.made: dict[str, Any] = {
            "stage": kind,
            "settings": {},
            "tools": {},
            "inputs": {},
        } | made


def put_run(store: Store, steps: Mapping[str, Table | Artifact], *, pipeline: str = "p") -> str:
    """Record a finished run with these tables; an `Artifact` is reused."""
    run_id, _ = runs.start_run(store, pipeline=pipeline, config_path="p.yaml", config="")
    made = {
        step: table if isinstance(table, Artifact) else put_table(store, run_id, step, table)
        for step, table in steps.items()
    }
    with store.writing() as connection:
        for position, (step, artifact) in enumerate(made.items()):
            runs.record_step(
                connection,
                run_id,
                step=step,
                position=position,
                artifact=artifact,
                reused=artifact is steps[step],
                seconds=0.0,
            )
    runs.end_run(store, run_id, "done")
    return run_id


def put_table(store: Store, run_id: str, step: str, table: Table) -> Artifact:
    key = content_key("table", run_id, step)
    made = table.made
    making = Provenance(
        run_id, key, key, made["inputs"], made["stage"], 1, made["settings"], made["tools"]
    )
    draft = ArtifactWriter(store, KINDS[table.kind], making, shards=1)
    draft.add(0, build(KINDS[table.kind], table.rows))
    return draft.artifact()


def samples(names: Sequence[str], **fields: Any) -> Table:
    """Samples with the same fields."""
    return Table("samples", [{"sample_id": name, **fields} for name in names])


def scores(metric: str, values: Mapping[str, float | str | None]) -> Table:
    """Scores by sample: a number, or a status."""
    rows = [
        {
            "sample_id": name,
            "metric": metric,
            "score": None if isinstance(value, str) else value,
            "status": value if isinstance(value, str) else "scored",
            "reason": f"why {value}" if isinstance(value, str) else None,
        }
        for name, value in values.items()
    ]
    return Table("scores", rows)


def claim_id(sample: str, claim: str | None, of: str = "response") -> str:
    return content_key("claim", sample, of, claim)


def claims(
    by_sample: Mapping[str, Sequence[str] | str], of: str = "response", **made: Any
) -> Table:
    """Claims by sample; a text in place of a list is the reason of a failure."""
    rows: list[dict[str, Any]] = []
    for name, texts in by_sample.items():
        if isinstance(texts, str):
            failed = {"status": "failed", "failure": "timeout", "reason": texts, "claim": None}
            rows.append(
                {"claim_id": claim_id(name, None, of), "sample_id": name, "of": of} | failed
            )
            continue
        rows += [
            {"claim_id": claim_id(name, text, of), "sample_id": name, "of": of, "claim": text}
            for text in texts
        ]
    return Table("claims", rows, **made)


def verdicts(
    verdict_of: Mapping[tuple[str, str], str], against: str = "reference", **made: Any
) -> Table:
    """Verdicts by sample and claim: a label, or the kind of failure."""
    labels = ("entailed", "contradicted", "neutral")
    rows = [
        {"claim_id": claim_id(name, claim), "against": against, "passage": None}
        | (
            {"verdict": word, "reason": f"because {word}"}
            if word in labels
            else {"verdict": None, "status": "failed", "failure": word, "reason": f"it was {word}"}
        )
        for (name, claim), word in verdict_of.items()
    ]
    return Table("verdicts", rows, **made)
