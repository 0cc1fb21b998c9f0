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
"""A way in which a sample has nothing to score, named after what is empty."""

EmptyValue = Literal["formula", "undefined", 0, 1]
"""The score in an empty case. `formula`: what the metric's formula gives, if it gives anything."""

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
    """The value of each case. Text of white space alone is empty, and so is a list of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: EmptyValue = "formula"
    refusal: EmptyValue = "formula"
    reference: EmptyValue = "formula"
    contexts: EmptyValue = "formula"


NO_SCORE_OF_REFUSALS: Final = EmptyPolicy(refusal="undefined")
"""For metrics that ask for facts: a response that states none is neither right nor wrong."""


class ScoreStage(Stage):
    """A stage that scores samples, with a setting `empty` for samples with nothing to score.

    `cases` names the empty cases that its samples can be in; their fields are the fields it
    needs. A value for any other case is an error. `own_settings` names settings that another
    library does not have: with `compat`, which follows that library, they may not be set, nor may
    any value of `empty`. A case that `empty` does not name has the value of the default of the
    class, and `formula` with `compat`.
    """

    cases: ClassVar[tuple[EmptyCase, ...]]
    own_settings: ClassVar[tuple[str, ...]] = ()

    empty: EmptyPolicy = EmptyPolicy()

    def required_fields(self) -> frozenset[SampleField]:
        """The fields of a sample without which its score is undefined."""
        return frozenset(CASE_FIELD[case] for case in self.cases)

    @model_validator(mode="after")
    def _complete_empty(self) -> Self:
        default: EmptyPolicy = type(self).model_fields["empty"].default
        others = EmptyPolicy() if getattr(self, "compat", None) else default
        named = self.empty.model_fields_set if "empty" in self.model_fields_set else ()
        policy = others.model_copy(update={case: getattr(self.empty, case) for case in named})
        # Not before the validation: a pipeline file is read strictly as JSON, and a dict would be
        # read strictly as Python, where no list is a tuple.
        object.__setattr__(self, "empty", policy)
        return self

    @model_validator(mode="after")
    def _no_own_settings_with_compat(self) -> Self:
        if getattr(self, "compat", None):
            if self.empty != EmptyPolicy():
                raise ValueError("empty cannot be combined with compat: remove one of them")
            for name in self.own_settings:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} cannot be combined with compat: remove one of them")
        return self

    @model_validator(mode="after")
    def _only_cases_that_occur(self) -> Self:
        for case, value in self.empty:
            if value != "formula" and case not in self.cases:
                known = ", ".join(self.cases)
                raise ValueError(f"empty.{case} has no effect on {self.use}: its cases are {known}")
        return self

    @model_validator(mode="after")
    def _no_number_that_is_best_and_worst(self) -> Self:
        if self.lower_is_better and set(self.metrics) - self.lower_is_better:
            for case, value in self.empty:
                if value not in ("formula", "undefined"):
                    raise ValueError(
                        f"empty.{case} is {value}, which is the best of some of these metrics and "
                        "the worst of others: write formula or undefined"
                    )
        return self

    def empty_cases(self, samples: pl.DataFrame) -> pl.DataFrame:
        """One row per sample, in order: `sample_id`, `missing`, `case`, `case_value`.

        `missing` names the missing fields and is NULL when there are none. When several
        cases hold, `case` is the first in the order of `cases` that has a declared value, or
        else the first.
        """
        return self.empty_cases_among(samples, [self.cases])[self.cases]

    def empty_cases_among(
        self, samples: pl.DataFrame, some: Iterable[tuple[EmptyCase, ...]]
    ) -> dict[tuple[EmptyCase, ...], pl.DataFrame]:
        """As `empty_cases`, for metrics to which only `some` of the cases and fields matter."""
        fields = sorted(self.required_fields())
        found = samples.select(
            "sample_id",
            *(pl.col(field).is_null().name.prefix("no ") for field in fields),
            **{case: _is_case(case, samples) for case in self.cases},
        )
        return {cases: found.select("sample_id", **self._among(cases)) for cases in some}

    def _among(self, cases: tuple[EmptyCase, ...]) -> dict[str, pl.Expr]:
        fields = sorted({CASE_FIELD[case] for case in cases})
        missing = pl.concat_str(
            [pl.when(f"no {field}").then(pl.lit(field)) for field in fields],
            separator=", ",
            ignore_nulls=True,
        )
        declared_first = sorted(cases, key=lambda case: getattr(self.empty, case) == "formula")
        values = {case: str(getattr(self.empty, case)) for case in cases}
        first = pl.coalesce(pl.when(case).then(pl.lit(case)) for case in declared_first)
        return {
            "missing": pl.when(missing != "").then(pl.format("missing: {}", missing)),
            "case": first,
            "case_value": first.replace_strict(values, default=None),
        }

    def needed(self, **tables: pl.DataFrame | None) -> dict[str, pl.DataFrame | None]:
        """`tables`, with None for those that these settings ignore.

        Raises `ValueError` naming every other one that is None.
        """
        ignored = self.ignores()
        lacking = [n for n, table in tables.items() if table is None and n not in ignored]
        if lacking:
            raise ValueError(f"{self.use} with these settings needs {', '.join(lacking)}")
        return {name: None if name in ignored else table for name, table in tables.items()}


def _is_case(case: EmptyCase, samples: pl.DataFrame) -> pl.Expr:
    if case == "refusal":
        refused = [bool(text) and is_refusal(text) for text in samples["response"]]
        return pl.lit(pl.Series(refused, dtype=pl.Boolean))
    return count_texts(CASE_FIELD[case]) == 0
