"""Settings of the checks of every run: failed rows, gates on its scores, canaries."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from claimflow.flows.errors import one_of
from claimflow.flows.object_storage import valid_location
from claimflow.flows.pipeline.model_settings import YamlModel
from claimflow.flows.pipeline.times import Duration

CANARY_AGREEMENT: Final = "canary_agreement"
"""The metric of gates on canaries: the share whose verdict equals their label."""


class CanarySource(YamlModel):
    """Pairs of premise and claim with a known label, which the judges of each run are checked with.

    A judge is asked once for each pair, and not again while the judge, its prompt and its
    settings stay the same, unless `fresh` or `every` is set. With both, at most `fresh` pairs
    whose verdict is older than `every` are asked again.
    """

    path: Annotated[str, AfterValidator(valid_location)]
    """A file with premise, claim and label in any format of samples, or a glob of such files."""
    fresh: int | None = Field(default=None, ge=1)
    """How many pairs are asked again in each run, those with the oldest verdicts first."""
    every: Duration | None = None
    """Pairs whose verdict is older are asked again; in seconds or as in 1d."""


def _share(given: Any) -> Any:
    """A share written as a fraction or in percent, as a fraction."""
    if isinstance(given, str) and re.fullmatch(r"\d+(\.\d+)? ?%", given):
        given = float(Decimal(given.rstrip(" %")) / 100)
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= 1:
        raise ValueError("write a share, as in 5 % or 0.05")
    return given


Share = Annotated[
    float,
    BeforeValidator(_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^\d+(\.\d+)? ?%$"},
            ]
        }
    ),
]
"""A share: from 0 to 1, or in percent with the sign, as in 5 %."""


class FailWhen(YamlModel):
    """A run fails when it has more failed rows, or when a metric has failures and no score."""

    failed_rows: Share = 0.05
    """The largest share of rows that may fail in the table of any step, as in 5 % or 0.05."""


def _unless_never(given: Any) -> Any:
    if given == "never":
        return None
    if isinstance(given, dict | FailWhen):
        return given
    raise ValueError("write never, or a limit as in {failed_rows: 5 %}")


OptionalFailWhen = Annotated[
    FailWhen | None,
    BeforeValidator(_unless_never, json_schema_input_type=FailWhen | Literal["never"]),
]
"""`FailWhen`, or None for the word never."""


def _another_run(word: str) -> str:
    if word == "latest":
        raise ValueError("latest is the run itself; name a tag, or previous")
    return word


class Gate(YamlModel):
    """Limits on the mean of a metric, which a run must keep to pass."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    """The lowest mean that passes."""
    max: float | None = Field(default=None, allow_inf_nan=False)
    """The highest mean that passes."""
    no_worse_than: Annotated[str, Field(min_length=1), AfterValidator(_another_run)] | None = None
    """A run to compare with: a tag, a run id or its beginning, or previous."""
    by: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How much worse than that run the mean may be."""
    steady: bool = False
    """For canaries: the verdicts must not have changed by more than chance."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.no_worse_than is not None and self.by is None:
            raise ValueError(
                "no_worse_than needs by: how much worse the mean may be, as in by: 0.02"
            )
        if self.by is not None and self.no_worse_than is None:
            raise ValueError("by belongs to no_worse_than: the run to compare with")
        if not self.steady and (self.min, self.max, self.no_worse_than) == (None, None, None):
            raise ValueError("write min, max, or no_worse_than and by")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self


def gate_name_faults(
    gates: Iterable[str],
    makers: Mapping[str, Sequence[str]],
    *,
    possible: Collection[str] = frozenset(),
) -> Iterator[tuple[str, str, str]]:
    """Gates that do not name exactly one metric: (gate, what is wrong, what would be right).

    `makers` holds the steps that make each metric. Where several do, a gate must name one, as
    `step.metric`; the metric alone means the step that has its name. Gates in `possible` are not
    reported as unknown.
    """
    full = {f"{step}.{metric}" for metric, steps in makers.items() for step in steps}
    for gate in gates:
        steps = makers.get(gate, ())
        if len(steps) > 1 and gate not in steps:
            choice = " or ".join(f"{step}.{gate}" for step in steps)
            yield gate, f"{len(steps)} steps make {gate!r}", f"write {choice}"
        elif not steps and gate not in full and gate not in possible:
            known = {*makers, *full, *possible}
            known = {name for name in known if ("." in name) == ("." in gate)}
            yield gate, f"no step makes the metric {gate!r}", one_of(gate, known)


def step_meant(metric: str, steps: Sequence[str]) -> str:
    """The one of the `steps` that make a metric which is meant where the metric is named alone."""
    return metric if metric in steps else steps[0]


def misplaced_steady(gates: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Gates with `steady` on another metric than canary agreement, as `gate_name_faults`."""
    for gate, rules in gates.items():
        if (
            isinstance(rules, dict)
            and rules.get("steady")
            and gate.rpartition(".")[2] != CANARY_AGREEMENT
        ):
            yield gate, "steady is for canaries only", f"write it for {CANARY_AGREEMENT}"


def unreachable_limits(
    gates: Mapping[str, object], ranges: Mapping[str, tuple[float, float]]
) -> Iterator[tuple[str, str, str, str]]:
    """Limits outside the range of a metric: (gate, min or max, what is wrong, what is right).

    `ranges` holds the lowest and highest value of each gate's metric, where these are known.
    """
    for gate, rules in gates.items():
        if not isinstance(rules, dict) or gate not in ranges:
            continue
        low, high = ranges[gate]
        for side in ("min", "max"):
            limit = rules.get(side)
            if (
                isinstance(limit, int | float)
                and not isinstance(limit, bool)
                and isfinite(limit)
                and not low <= limit <= high
            ):
                metric = gate.rpartition(".")[2]
                what = f"{limit:g} is out of range: {metric} is from {low:g} to {high:g}"
                yield gate, side, what, "write a number in that range"
