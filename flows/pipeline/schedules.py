"""Schedules files: which pipeline runs when, and what happens when it cannot."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, ValidationError, model_validator

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.files import is_file, is_folder
from claimflow.flows.object_storage import is_remote, valid_location
from claimflow.flows.pipeline.model_settings import LIMIT_NAME, YamlModel
from claimflow.flows.pipeline.pipeline import Pipeline, build_pipeline
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.times import Duration, check_cron, to_timedelta
from claimflow.flows.pipeline.yaml_source import YamlSource, load_yaml

# What a schedules file may say.


def _timezone(name: str) -> str:
    known = available_timezones()
    if name in known:
        return name
    near = one_of(name, known)
    hint = near if near.startswith("did") else "write one as in Europe/Berlin"
    raise ValueError(f"there is no time zone {name!r}; {hint}")


def _folder(place: str) -> str:
    if is_remote(place):
        raise ValueError("name a folder: reports are written to files alone")
    return place


class Parameters(YamlModel):
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


class Deployment(YamlModel):
    """A pipeline that runs by itself."""

    pipeline: str
    """The pipeline's YAML file, relative to this one."""
    cron: Annotated[str, AfterValidator(check_cron)] | None = None
    """When, in the five fields of cron: "0 2 * * *" is every night at two."""
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    """The time zone of cron, as in Europe/Berlin; UTC when left out."""
    every: Duration | None = None
    """How often, in seconds or as in 6h, counted from midnight in UTC."""
    parameters: Parameters = Field(default=Parameters())
    """What is asked of the pipeline; the whole of it when left out."""
    overlap: Literal["wait", "skip"] = "skip"
    """What a run does whose forerunner still runs: wait for it, or be left out."""
    missed: Literal["run", "skip"] = "run"
    """What becomes of times missed while everything was down: one run for all, or none."""
    publish: Annotated[str, AfterValidator(valid_location)] | None = None
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
        return None if self.every is None else to_timedelta(self.every)


class SharedLimit(YamlModel):
    """What runs that name it in `shared_limit` may do together."""

    rpm: int = Field(ge=1)
    """Requests a minute, divided among the runs that ask."""


class Schedules(YamlModel):
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


# What a schedules file says: which pipeline runs when, and what if it cannot.


_NAME_OF = {"--again": "again", "--only": "only", "--from": "from_step"}
"""Rerun's words for what is called otherwise among the parameters."""


class Scheduled(NamedTuple):
    """A deployment with its name; `folder` is what the paths in it are relative to."""

    name: str
    folder: Path
    written: Deployment

    @property
    def parameters(self) -> dict[str, Any]:
        """What a run of it is started with: parameters of the flow, with absolute paths."""
        asked = self.written.parameters.model_dump(mode="json", exclude_defaults=True)
        for name in ("store", "samples"):
            # What is no file among the samples is a SELECT.
            if name in asked and (name == "store" or is_file(self.folder / asked[name])):
                asked[name] = self._absolute(asked[name])
        publish = self.written.publish
        if publish is not None:
            asked["publish"] = publish if is_remote(publish) else self._absolute(publish)
        if self.written.report is not None:
            asked["report"] = self._absolute(self.written.report)
        return {"config": self._absolute(self.written.pipeline), **asked}

    def _absolute(self, path: str) -> str:
        return str((self.folder / path).resolve())


class ScheduleFile(NamedTuple):
    """A schedules file that was read: its deployments, in its order, and its limits by name."""

    scheduled: list[Scheduled]
    limits: Mapping[str, SharedLimit]


def read_schedules(path: Path) -> ScheduleFile:
    """What a schedules file says.

    The pipelines that they name are read, too. Raises `InputError` with every fault, in the
    file and in its pipelines.
    """
    source = load_yaml(path)
    faults = list(source.faults)
    try:
        read = Schedules.model_validate_json(json.dumps(source.value, default=str), strict=True)
    except ValidationError as error:
        faults += _faults(source, error)
        raise InputError(sorted(faults, key=_file_and_line)) from error
    for name, written in read.deployments.items():
        faults += _pipeline_faults(source, name, written)
    if faults:
        # A pipeline that is scheduled twice is told once.
        raise InputError(sorted(dict.fromkeys(faults), key=_file_and_line))
    scheduled = [Scheduled(name, source.folder, one) for name, one in read.deployments.items()]
    return ScheduleFile(scheduled, read.limits)


def _pipeline_faults(source: YamlSource, name: str, written: Deployment) -> Iterator[Fault]:
    """What is wrong with a deployment's pipeline, and what its parameters ask of it."""
    at = ("deployments", name)
    path = source.folder / written.pipeline
    if not is_file(path):
        what = f"there is no file {written.pipeline!r}"
        beside = path.parent.glob("*.yaml") if is_folder(path.parent) else ()
        near = [other.name for other in beside]
        yield Fault(source.place(*at, "pipeline"), what, one_of(path.name, near))
        return
    asked = written.parameters
    rerun = Rerun(
        asked.again, asked.fresh, asked.only, asked.from_step, asked.failed, asked.samples
    )
    clashes = list(rerun.clashes(limit=asked.limit))
    for fault in clashes:
        words = " and ".join(map(_parameter, fault.place.split(" and ")))
        place = source.place(*at, "parameters")
        yield Fault(place, f"{words}: {fault.what}", fault.hint)
    try:
        pipeline = build_pipeline(load_yaml(path))
    except InputError as error:
        yield from error.faults
        return
    if not clashes:
        yield from _unknown_steps(source, at, rerun, pipeline)


def _unknown_steps(
    source: YamlSource, at: tuple[str, str], rerun: Rerun, pipeline: Pipeline
) -> Iterator[Fault]:
    for fault in rerun.unknown(pipeline):
        option = fault.place.partition(" ")[0]
        place = source.place(*at, "parameters", _parameter(option))
        yield Fault(place, fault.what.replace("--", ""), fault.hint.replace("--", ""))


def _parameter(option: str) -> str:
    return _NAME_OF.get(option, option.removeprefix("--"))


def _faults(source: YamlSource, error: ValidationError) -> Iterator[Fault]:
    for finding in error.errors(include_url=False):
        path = tuple(str(key) for key in finding["loc"] if key != "[key]")
        given, context = finding["input"], finding.get("ctx", {})
        what = f"{given!r} is not right here"
        hint = finding["msg"][0].lower() + finding["msg"][1:]
        match finding["type"]:
            case "missing":
                what, hint = f"lacks {path[-1]!r}", f"write {path[-1]}: ..."
            case "extra_forbidden":
                what, hint = f"unknown key {path[-1]!r}", one_of(path[-1], _keys(path))
            case "model_type" | "dict_type":
                what = "is empty" if given is None else "is no mapping"
                hint = f"write {', '.join(_keys((*path, '')))}: ..."
            case "too_short":
                what, hint = "is empty", "write at least one"
            case "literal_error":
                what, hint = f"{given!r} is not allowed", f"write {context['expected']}"
            case "value_error":
                what, hint = "is not right", str(context["error"])
            case "string_pattern_mismatch":
                what, hint = f"{given!r} is no name", "use letters, digits, - and _"
        yield Fault(source.place(*path), what, hint)


def _keys(path: tuple[str, ...]) -> list[str]:
    """The keys that may stand beside the last of `path`."""
    of_name = SharedLimit if path[0] == "limits" else Deployment
    known: dict[int, Any] = {1: Schedules, 3: of_name, 4: Parameters}
    return list(known[len(path)].model_fields) if len(path) in known else ["NAME"]


def _file_and_line(fault: Fault) -> tuple[str, int]:
    file, _, rest = fault.place.partition(":")
    found = re.match(r"\d+", rest)
    return file, int(found[0]) if found else 0
