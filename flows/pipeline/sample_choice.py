"""Settings of a pipeline for its samples: which of them are evaluated, and what is redacted."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Self

import regex
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from claimflow.flows.pipeline.model_settings import YamlModel
from claimflow.flows.pipeline.times import check_duration, to_timedelta
from claimflow.stages.plugins import is_reference

LAST_RUN: Final = "last_run"
"""The value of `since` for samples that no finished run has seen."""

TIME_FIELD: Final = "start_time"
"""The field of the metadata with the time of a trace."""

_MOST_CHARACTERS: Final = 10_000


def _check_since(given: Any) -> Any:
    # YAML reads an unquoted date as one.
    text = given if isinstance(given, str) else None
    if text is None:
        raise ValueError("write last_run, a length such as 7d, or a date and time in quotes")
    if text == LAST_RUN:
        return text
    try:
        check_duration(text)
    except ValueError:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            what = "write last_run, a length such as 7d, or a date and time such as 2026-01-31"
            raise ValueError(what) from None
    return text


class Selection(YamlModel):
    """Which samples are evaluated: each setting leaves out some of those that the one before it
    leaves."""

    since: Annotated[str, BeforeValidator(_check_since)] | None = None
    """last_run for samples that no finished run has seen, or a length such as 24h or 7d, or a date
    and time (UTC where it names no offset)."""
    time_field: str = Field(default=TIME_FIELD, min_length=1)
    """The metadata field with the time of a sample, as ISO 8601 or seconds since 1970."""
    where: str | None = Field(default=None, min_length=1, max_length=_MOST_CHARACTERS)
    """An SQL condition of DuckDB over the fields and the metadata of a sample."""
    distinct: bool = False
    """Whether one is taken of the samples with the same question, answer, contexts and history."""
    share: float | None = Field(default=None, gt=0, le=1)
    """The share of the samples, drawn by their content: the same ones in every run."""
    at_most: int | None = Field(default=None, ge=1)
    """The most samples of a run, drawn by their content."""
    by: str | None = Field(default=None, min_length=1)
    """The metadata field over whose values at_most is divided evenly."""
    seed: int = 0
    """Another seed draws other samples."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.by is not None and self.at_most is None:
            raise ValueError("by belongs to at_most")
        if self.seed and self.share is None and self.at_most is None:
            raise ValueError("seed belongs to share and at_most")
        if "time_field" in self.model_fields_set and self.since in (None, LAST_RUN):
            raise ValueError("time_field belongs to since with a length or a time")
        return self

    def earliest(self, now: datetime) -> datetime | None:
        """The time from which samples are taken; None where `since` names no time."""
        if self.since is None or self.since == LAST_RUN:
            return None
        try:
            length: timedelta = to_timedelta(check_duration(self.since))
        except ValueError:
            moment = datetime.fromisoformat(self.since)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return now - length


def _check_pattern(pattern: str) -> str:
    try:
        found = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"not a regular expression ({error})") from None
    if found.search("") is not None:
        raise ValueError("matches the empty text, so it would be found everywhere")
    return pattern


class RedactedPattern(YamlModel):
    """A regular expression whose matches are replaced."""

    model_config = ConfigDict(populate_by_name=True)

    pattern: Annotated[str, AfterValidator(_check_pattern)] = Field(
        min_length=1, max_length=_MOST_CHARACTERS
    )
    """A regular expression of Python's package regex, for example [\\w.]+@[\\w.]+."""
    replacement: str = Field(default="[REDACTED]", alias="with", max_length=1_000)
    """What stands in the place of each match, as it is written."""


def _check_reference(text: str) -> str:
    if not is_reference(text):
        raise ValueError("write module:function")
    return text


REDACTION_TAGS: Final = ("redacting pattern", "redacting function")
"""The tags of the two forms of a redaction, which pydantic adds to the place of an error."""

_Redaction = Annotated[
    Annotated[RedactedPattern, Tag(REDACTION_TAGS[0])]
    | Annotated[str, AfterValidator(_check_reference), Tag(REDACTION_TAGS[1])],
    Discriminator(lambda given: REDACTION_TAGS[isinstance(given, str)]),
]

Redactions = Annotated[
    list[_Redaction],
    Field(min_length=1),
    BeforeValidator(
        lambda given: given if isinstance(given, list) else [given],
        json_schema_input_type=(RedactedPattern | str | list[RedactedPattern | str]),
    ),
]
"""Patterns and functions in the order in which they are applied."""
