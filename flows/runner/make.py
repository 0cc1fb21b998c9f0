"""Run a stage, or a chain of stages, on its inputs.

What a stage of another package raises becomes failed rows.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.errors import (
    InputError,
    JudgeError,
    PendingError,
    RunTimeoutError,
    StoppedError,
    StoreError,
    WorkersError,
)
from claimflow.flows.judge.environment_secrets import without_secrets
from claimflow.stages.base import Stage
from claimflow.stages.plugins import describe
from claimflow.stages.rows import Claim, Score, Similarity, Verdict, content_key
from claimflow.stages.tables import TableError, build, content_columns

_OURS: Final = (
    InputError,
    JudgeError,
    PendingError,
    RunTimeoutError,
    StoppedError,
    StoreError,
    WorkersError,
    KeyboardInterrupt,
    GeneratorExit,
)
"""Errors that a tool raises through a stage, and that end a run in order."""


class StageFailedError(Exception):
    """A stage of another package failed, and its kind of row has no status to say so."""


def make_table(
    stage: Stage, tables: Mapping[str, Any], tools: Mapping[str, Any], source: str | None = None
) -> pl.DataFrame:
    """The table that a stage makes, checked.

    A stage of another package that raises, or whose table is wrong, gives failed rows with the
    exception, one for each row that it should have made. Raises `StageFailedError` where such rows
    cannot say that they failed. `source` is the digest of the source that the stage had when the
    run began: with another one in a worker process it fails as well.
    """
    if stage.source is None:
        return stage.make(tables, tools)
    try:
        if source not in (None, stage.source.digest):
            raise RuntimeError(f"{type(stage).__module__} was changed during the run: run again")
        return _without_secrets(_complete(stage, tables, stage.make(tables, tools)))
    except BaseException as error:
        if isinstance(error, _OURS):
            raise
        reason = without_secrets(describe(error, module=type(stage).__module__))
        if "status" not in stage.makes.model_fields:
            raise StageFailedError(reason) from None
        return build(stage.makes, _failed_rows(stage, tables, reason))


def run_stage(stage: Stage, tables: Mapping[str, Any], tools: Mapping[str, Any]) -> pl.DataFrame:
    """As `make_table`; the rows of built-in stages are not checked again."""
    return (
        stage.run(**tables, **tools) if stage.source is None else make_table(stage, tables, tools)
    )


class Link(NamedTuple):
    """A step of a chain as a worker gets it; `source` is the digest that its source must have."""

    name: str
    stage: Stage
    inputs: Mapping[str, str]
    source: str | None


def make_chain(
    links: Sequence[Link], tables: Mapping[str, Any], parsers: Mapping[str, dict[str, Any]]
) -> list[pl.DataFrame]:
    """Run on a worker: the tables of the steps of a chain, by `tables` of samples by input.

    `parsers` has the identity of the parser by the name of the tool, of the first step alone. The
    list ends before a step that fails: it is made again by itself, where its error is told.
    """
    first, *others = links
    work: Callable[..., pl.DataFrame] = make_table
    if parsers:
        # Here: the models take longer to import than the rest.
        from claimflow.flows.runner.embedded_models import make_with_parser

        work = make_with_parser
    given = given_columns(first.stage, tables)
    found = [work(first.stage, given, parsers, first.source)]
    made: dict[str, pl.DataFrame] = {**tables, first.name: found[0]}
    for one in others:
        try:
            wired = {name: made[wire] for name, wire in one.inputs.items()}
            given = given_columns(one.stage, wired)
            made[one.name] = make_table(one.stage, given, {}, one.source)
        except Exception:
            break
        found.append(made[one.name])
    return found


def given_columns(stage: Stage, tables: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """The columns of each table that a stage gets of a stored one."""
    return {
        name: table.select(stage.columns_of(name) or content_columns(stage.inputs[name].row))
        for name, table in tables.items()
    }


def is_importable(stage: Stage) -> bool:
    """Whether another process can import the class of a stage; not from a script or notebook."""
    kind = type(stage)
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind and kind.__module__ != "__main__"


def _complete(stage: Stage, tables: Mapping[str, Any], made: pl.DataFrame) -> pl.DataFrame:
    """The table of a stage, with a failed score for each sample and metric that it left out.

    Raises `TableError` for rows of unknown samples and for metrics that the class does not name.
    """
    if "samples" not in tables or "sample_id" not in made.columns:
        return made
    samples = tables["samples"].select("sample_id")
    strange = made.join(samples, on="sample_id", how="anti")
    if strange.height:
        raise TableError(f"rows of unknown samples, such as {strange['sample_id'][0]!r}")
    if stage.makes is not Score:
        return made
    unknown = sorted(set(made["metric"]) - set(stage.metrics))
    if unknown:
        raise TableError(f"scores of {unknown[0]!r}, which is not in metrics of the class")
    expected = samples.join(pl.DataFrame({"metric": stage.metrics}), how="cross")
    left_out = expected.join(made, on=["sample_id", "metric"], how="anti")
    if left_out.is_empty():
        return made
    reason = "the stage made no score of this sample"
    rows = [{**row, **_NO_SCORE, "reason": reason} for row in left_out.to_dicts()]
    return pl.concat([made, build(Score, rows)])


_NO_SCORE: Final = {"score": None, "status": "failed"}


def _without_secrets(made: pl.DataFrame) -> pl.DataFrame:
    """The table without keys in its reasons, which may hold texts of exceptions."""
    if "reason" not in made.columns:
        return made
    reasons = made["reason"].drop_nulls().unique().to_list()
    changed = {old: new for old in reasons if (new := without_secrets(old)) != old}
    return made.with_columns(pl.col("reason").replace(changed)) if changed else made


def _failed_rows(
    stage: Stage, tables: Mapping[str, Any], reason: str
) -> Iterator[Mapping[str, Any]]:
    """One failed row for each row that a stage should have made."""
    failed = {"status": "failed", "reason": reason}
    if stage.makes is Verdict:
        against = stage.premise or getattr(stage, "against", None) or "response"
        for claim_id in _claim_ids(stage.inputs, tables):
            yield {"claim_id": claim_id, "against": against, "verdict": None, **failed}
        return
    for sample_id in tables["samples"]["sample_id"] if "samples" in tables else ():
        if stage.makes is Score:
            yield from (
                {"sample_id": sample_id, "metric": metric, "score": None, **failed}
                for metric in stage.metrics
            )
        elif stage.makes is Claim:
            of = stage.claims_of or getattr(stage, "of", None) or "response"
            key = content_key("claim", "failed", stage.use, sample_id)
            yield {"claim_id": key, "sample_id": sample_id, "of": of, "claim": None, **failed}
        elif stage.makes is Similarity:
            left, right = getattr(stage, "left", "response"), getattr(stage, "right", "reference")
            yield {"sample_id": sample_id, "left": left, "right": right, "cosine": None, **failed}


def _claim_ids(inputs: Mapping[str, Any], tables: Mapping[str, Any]) -> list[str]:
    """The claims among the inputs of a stage."""
    found = [tables[name] for name, one in inputs.items() if one.row is Claim and name in tables]
    return list(dict.fromkeys(claim_id for table in found for claim_id in table["claim_id"]))
