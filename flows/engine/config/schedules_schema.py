"""What a schedules file may say."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from claimflow.flows.engine.config.cron import cron_line
from claimflow.flows.engine.endpoints import LIMIT_NAME, Source
from claimflow.flows.engine.errors import one_of
from claimflow.flows.engine.object_storage import is_remote, known_place
from claimflow.flows.engine.spans import Span, span


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
    cron: Annotated[str, AfterValidator(cron_line)] | None = None
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
