"""Empty cases: samples with nothing to score, and the value that each case gets."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Literal, Self

import polars as pl
from pydantic import BaseModel, ConfigDict, model_validator

from claimflow.stages.base import Stage
from claimflow.stages.rows import SampleField
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.text.refusals import is_refusal

EmptyCase = Literal["response", "refusal", "reference", "contexts"]
"""A way of having nothing to score, named after what is empty."""

EmptyValue = Literal["formula", "undefined", 0, 1]
"""What a case is worth. `formula`: what the metric's formula gives, if it gives anything."""

CASE_FIELD: Final[Mapping[EmptyCase, SampleField]] = {
    "response": "response",
    "refusal": "response",
    "reference": "reference",
    "contexts": "retrieved_contexts",
}
CASE_REASON: Final[Mapping[EmptyCase, str]] = {
    "response": "the response is empty",
    "refusal": "the response is a refusal",
    "reference": "the reference is empty",
    "contexts": "there are no contexts",
}


class EmptyPolicy(BaseModel):
    """The worth of each case. Text of white space alone is empty, and so is a list of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: EmptyValue = "formula"
    refusal: EmptyValue = "formula"
    reference: EmptyValue = "formula"
    contexts: EmptyValue = "formula"


class ScoreStage(Stage):
    """A stage that scores samples, and so must say what having nothing to score is worth.

    `cases` names the ways in which its samples can have nothing; their fields are the
    fields it needs. Setting the worth of any other case is an error. So is, in a stage that
    can follow another library (`compat`), setting any worth or what is its `own`: settings
    that the library knows nothing of.
    """

    cases: ClassVar[tuple[EmptyCase, ...]]
    own: ClassVar[tuple[str, ...]] = ()

    empty: EmptyPolicy = EmptyPolicy()

    def required_fields(self) -> frozenset[SampleField]:
        """The fields of a sample without which its score is undefined."""
        return frozenset(CASE_FIELD[case] for case in self.cases)

    @model_validator(mode="after")
    def _nothing_of_our_own_in_compat(self) -> Self:
        if getattr(self, "compat", None):
            for name in ("empty", *self.own):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no bearing with compat")
        return self

    @model_validator(mode="after")
    def _only_cases_that_occur(self) -> Self:
        for case, worth in self.empty:
            if worth != "formula" and case not in self.cases:
                known = ", ".join(self.cases)
                raise ValueError(f"empty.{case} has no bearing on {self.use}, only {known}")
        return self

    def situation(self, samples: pl.DataFrame) -> pl.DataFrame:
        """One row per sample, in order: `sample_id`, `missing`, `case`, `worth`.

        `missing` names the missing fields and is NULL when there are none. When several
        cases hold, one with a declared worth goes before one left to the formula, and
        then in the order of `cases`.
        """
        return self.situations(samples, [self.cases])[self.cases]

    def situations(
        self, samples: pl.DataFrame, some: Iterable[tuple[EmptyCase, ...]]
    ) -> dict[tuple[EmptyCase, ...], pl.DataFrame]:
        """The situation for metrics that know only `some` of the cases and need their fields."""
        held = samples.select(
            "sample_id",
            *(
                pl.col(field).is_null().name.prefix("no ")
                for field in sorted(self.required_fields())
            ),
            **{case: _holds(case, samples) for case in self.cases},
        )
        return {cases: held.select("sample_id", **self._among(cases)) for cases in some}

    def _among(self, cases: tuple[EmptyCase, ...]) -> dict[str, pl.Expr]:
        missing = pl.concat_str(
            [
                pl.when(f"no {field}").then(pl.lit(field))
                for field in sorted({CASE_FIELD[case] for case in cases})
            ],
            separator=", ",
            ignore_nulls=True,
        )
        by_rank = sorted(cases, key=lambda case: getattr(self.empty, case) == "formula")
        worths = {case: str(getattr(self.empty, case)) for case in cases}
        first = pl.coalesce(pl.when(case).then(pl.lit(case)) for case in by_rank)
        return {
            "missing": pl.when(missing != "").then(pl.format("missing: {}", missing)),
            "case": first,
            "worth": first.replace_strict(worths, default=None),
        }

    def needed(self, **tables: pl.DataFrame | None) -> dict[str, pl.DataFrame | None]:
        """`tables` without those that these settings ignore.

        Raises `ValueError` naming every other one that is not there.
        """
        ignored = self.ignores()
        lacking = [n for n, table in tables.items() if table is None and n not in ignored]
        if lacking:
            raise ValueError(f"{self.use} with these settings needs {', '.join(lacking)}")
        return {name: None if name in ignored else table for name, table in tables.items()}


def _holds(case: EmptyCase, samples: pl.DataFrame) -> pl.Expr:
    if case == "refusal":
        refused = [bool(text) and is_refusal(text) for text in samples["response"]]
        return pl.lit(pl.Series(refused, dtype=pl.Boolean))
    return count_texts(CASE_FIELD[case]) == 0
