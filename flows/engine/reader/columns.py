"""Which column of the input gives which field of a sample."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from claimflow.flows.engine.errors import Fault, one_of
from claimflow.stages.rows import Sample

FIELDS: Final = tuple(name for name in Sample.model_fields if name != "metadata")
"""The fields of a sample that a column can give; every other column becomes metadata."""

ALIASES: Final[Mapping[str, str]] = {
    "id": "sample_id",
    "question": "user_input",
    "query": "user_input",
    "input": "user_input",
    "answer": "response",
    "actual_output": "response",
    "ground_truth": "reference",
    "ground_truths": "reference",
    "ground_truth_answers": "reference",
    "gt_answer": "reference",
    "expected_output": "reference",
    "contexts": "retrieved_contexts",
    "retrieved_context": "retrieved_contexts",
    "retrieval_context": "retrieved_contexts",
}
"""The names that ragas, DeepEval, continuous-eval and RAGChecker give the same fields."""


def fields_by_column(rename: Mapping[str, str]) -> dict[str, str]:
    """Every column name that gives a field.

    A field that `rename` fills is filled by nothing else: a column of its own name, or of
    an alias of it, is metadata then.
    """
    known = {name: name for name in FIELDS} | dict(ALIASES)
    renamed = set(rename.values())
    return {name: field for name, field in known.items() if field not in renamed} | dict(rename)


def unknown_fields(rename: Mapping[str, str]) -> Iterator[Fault]:
    """A fault for every entry of `rename` whose right side is no field of a sample."""
    for column, field in rename.items():
        if field not in FIELDS:
            what = f"{field!r} is no field of a sample"
            yield Fault(f"rename.{column}", what, one_of(field, FIELDS))


def mapping_faults(
    path: str, columns: Collection[str], rename: Mapping[str, str]
) -> Iterator[Fault]:
    """A fault for every field that two columns give, and every renamed column there is not."""
    by_column = fields_by_column(rename)
    for field in FIELDS:
        giving = sorted(name for name in columns if by_column.get(name) == field)
        if len(giving) > 1:
            what = f"{' and '.join(map(repr, giving))} give the same field, {field}"
            right = f"choose one under rename, such as {{{giving[0]}: {field}}}"
            yield Fault(path, what, right)
    for column in rename:
        if column not in columns:
            yield Fault(f"rename.{column}", f"no sample has {column!r}", one_of(column, columns))
