"""What a schedules file may say."""

import re
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from flows.engine.endpoints import LIMIT_NAME, Source
from flows.engine.errors import one_of
from flows.engine.object_storage import is_remote, known_place
from flows.engine.spans import Span, span

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS: Final = "sun mon tue wed thu fri sat".split()
_CRON: Final = (
    ("minute", range(60), ()),
    ("hour", range(24), ()),
    ("day of the month", range(1, 32), ()),
    ("month", range(1, 13), _MONTHS),
    ("day of the week", range(8), _DAYS),
)
_PART: Final = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?")


def _cron(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON):
        raise ValueError(
            "write five fields, as in '0 2 * * *' for two at night: "
            "minute, hour, day of the month, month, day of the week"
        )
    for field, (name, numbers, words) in zip(fields, _CRON, strict=True):
        for part in field.split(","):
            found = _PART.fullmatch(part)
            ends = [end for end in found.groups()[:2] if end] if found else [part]
            known = {str(number) for number in numbers}.union(words)
            # Cron takes 05 for 5, and names in capitals.
            if any((end.lstrip("0") or "0").lower() not in known for end in ends):
                right = f"{numbers[0]} to {numbers[-1]}"
                named = f" or {words[0]} to {words[-1]}" if words else ""
                raise ValueError(f"{part!r} is no {name}: write *, or {right}{named}")
    return text


def _timezone(name: str) -> str:
    known = available_timezones()
    if name in known:
        return name
    near = one_of(name, known)
    right = near if near.startswith("did") else "write one as in Europe/Berlin"
    raise ValueError(f"there is no time zone {name!r}; {right}")


def _folder(place: str) -> str:
    if is_remote(place):
        raise ValueError("name a folder: reports are written to files alone")
    return place


class Parameters(Source):
    """What is asked of a pipeline, as by the options of `claimflow run`."""

    store: str | None = None
    """A DuckDB file instead of the pipeline's, relative to this file."""
    limit: int | None = Field(default=None, ge=1)
    """Take the first samples only."""
    again: tuple[str, ...] = ()
    """Steps to make even though their tables are on file."""
    fresh: bool = False
    """Ask models anew: for the steps of again, or for all that the run has."""
    only: tuple[str, ...] = ()
    """Just these steps; what they need must be on file."""
    from_step: str | None = None
    """Just this step and what depends on it; what they need must be on file."""
    failed: bool = False
    """Just what failed in the newest run and what depends on it."""
    samples: str | None = None
    """Just these samples: a file of their ids, relative to this one, or a SELECT of them."""
    redact: bool = False
    """Keep only hashes of the texts in the record of calls."""


class Deployment(Source):
    """A pipeline that runs by itself."""

    pipeline: str
    """The pipeline's YAML file, relative to this one."""
    cron: Annotated[str, AfterValidator(_cron)] | None = None
    """When, in the five fields of cron: "0 2 * * *" is every night at two."""
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    """The time zone of cron, as in Europe/Berlin; UTC when left out."""
    every: Span | None = None
    """How often, in seconds or as in 6h, counted from midnight in UTC."""
    parameters: Parameters = Field(default=Parameters())
    """What is asked of the pipeline; the whole of it when left out."""
    overlap: Literal["wait", "skip"] = "skip"
    """What a run does whose forerunner still runs: wait for it, or be left out."""
    missed: Literal["run", "skip"] = "run"
    """What becomes of times missed while everything was down: one run for all, or none."""
    publish: Annotated[str, AfterValidator(known_place)] | None = None
    """Where the tables of each run go as Parquet: a folder, relative to this file, or s3://."""
    report: Annotated[str, AfterValidator(_folder)] | None = None
    """The folder, relative to this file, where a page about each run is put."""

    @model_validator(mode="after")
    def _has_one_schedule(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError("write one of cron and every")
        if self.timezone is not None and self.cron is None:
            raise ValueError("timezone belongs to cron")
        return self

    @property
    def interval(self) -> timedelta | None:
        """`every` as a span of time."""
        return None if self.every is None else span(self.every)


class SharedLimit(Source):
    """What runs that name it in `shared_limit` may do together."""

    rpm: int = Field(ge=1)
    """Requests a minute, divided among the runs that ask."""


class Schedules(Source):
    """The deployments of one file, and the limits that runs share."""

    deployments: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], Deployment] = (
        Field(min_length=1, json_schema_extra={"additionalProperties": False})
    )
    """Name -> what runs when."""
    limits: dict[Annotated[str, Field(pattern=LIMIT_NAME)], SharedLimit] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """Name -> what all runs that name it share."""


def schedules_schema() -> dict[str, Any]:
    """JSON Schema of a schedules file, for editors."""
    return Schedules.model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "claimflow schedules",
    }
