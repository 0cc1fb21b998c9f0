"""Schedules files: which pipeline runs when, and what happens to missed times."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.files import is_file, is_folder
from claimflow.flows.object_storage import is_remote, valid_location
from claimflow.flows.pipeline.model_settings import LIMIT_NAME, YamlModel
from claimflow.flows.pipeline.pipeline import Pipeline, build_pipeline
from claimflow.flows.pipeline.rerun import Part, Rerun
from claimflow.flows.pipeline.times import MAX_DAYS, Duration, Wait, check_cron, to_timedelta
from claimflow.flows.pipeline.yaml_errors import error_message, validate
from claimflow.flows.pipeline.yaml_source import YamlSource, load_yaml
from claimflow.stages.plugins import entry_point_names


def _timezone(name: str) -> str:
    known = available_timezones()
    if name in known:
        return name
    near = one_of(name, known)
    hint = near if near.startswith("did") else "write one as in Europe/Berlin"
    raise ValueError(f"there is no time zone {name!r}; {hint}")


def _folder(place: str) -> str:
    if is_remote(place):
        raise ValueError("name a folder: reports cannot be written to object storage")
    return place


def _block(name: str) -> str:
    if re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", name) is None:
        raise ValueError("write the type and the name of a block, as in slack-webhook/nights")
    return name


TARGET_GROUP: Final = "claimflow.targets"
"""The group of entry points by which a package adds a target for scores."""

TARGETS: Final = frozenset({"otlp", "langfuse", "phoenix", "mlflow"})
"""Where claimflow itself sends scores."""


def target_names() -> set[str]:
    """The names of all targets that are installed."""
    return {*TARGETS, *entry_point_names(TARGET_GROUP)}


def _target(name: str) -> str:
    if name not in target_names():
        raise ValueError(f"there is no target {name!r}; {one_of(name, target_names())}")
    return name


def _part(text: str) -> str:
    try:
        return str(Part.named(text))
    except InputError as error:
        [fault] = error.faults
        raise ValueError(f"{fault.what}; {fault.hint}") from error


def _send(written: Any) -> Any:
    """A target by its name, or its name with settings, in the form of `Send`."""
    if isinstance(written, str):
        return {"to": written}
    if isinstance(written, dict) and len(written) == 1 and "to" not in written:
        ((name, settings),) = written.items()
        given = {"to": name, **settings} if isinstance(settings, dict) else {"to": name}
        # What a validator returns is no longer JSON, whose lists are taken for tuples.
        return {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}
    return written


class Parameters(YamlModel):
    """Parameters of a run, as the options of `claimflow run`."""

    store: str | None = None
    """A DuckDB file instead of the pipeline's, relative to this file."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first samples."""
    again: tuple[str, ...] = ()
    """Steps to make although their tables are stored."""
    fresh: bool = False
    """Ask models again: for the steps of again, or for all steps of the run."""
    only: tuple[str, ...] = ()
    """Only these steps; the tables that they need must be stored."""
    from_step: str | None = None
    """Only this step and those that depend on it; other tables must be stored."""
    failed: bool = False
    """Only steps whose newest table has failed rows, and those that depend on them."""
    samples: str | None = None
    """Only these samples: a file of their ids, relative to this file, or a SELECT of them."""
    skip_unusable: bool = False
    """Leave out samples that cannot be used; the run counts as one of some samples then."""
    part: Annotated[str, AfterValidator(_part)] | None = None
    """Only this part of the samples, as in 2/4, for one of several machines."""
    redact: bool = False
    """Store only hashes of the texts of calls."""
    batch: bool = False
    """Send the calls of judges in batches, at half the price, answered within a day."""


class Keep(YamlModel):
    """Which runs are kept; older ones are removed after each run."""

    runs: int | None = Field(default=None, ge=1)
    """The newest runs of the pipeline, so many."""
    days: int | None = Field(default=None, ge=1, le=MAX_DAYS)
    """The runs of the last days, so many."""

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if self.runs is None and self.days is None:
            raise ValueError("write runs, days or both")
        return self


class Notify(YamlModel):
    """Who hears of runs that failed or are late."""

    block: Annotated[str, AfterValidator(_block)]
    """A notification or webhook block of Prefect by type and name, as in slack-webhook/nights."""


class Send(YamlModel):
    """A target that the scores of each run are sent to."""

    to: Annotated[str, AfterValidator(_target)]
    """otlp, langfuse, phoenix, mlflow, or the name of another package's target."""
    metrics: tuple[str, ...] = ()
    """Only these metrics; all when left out."""


_SETTINGS: Final[JsonSchemaValue] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "metrics": {
            "description": "Only these metrics; all when left out.",
            "items": {"type": "string"},
            "type": "array",
        }
    },
}

_SEND: Final[JsonSchemaValue] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": _SETTINGS,
        },
    ]
}
"""How a `Send` is written: `otlp`, or `otlp: {metrics: [faithfulness]}`."""


class Deployment(YamlModel):
    """A pipeline that runs on a schedule."""

    pipeline: str
    """The pipeline's YAML file, relative to this one."""
    cron: Annotated[str, AfterValidator(check_cron)] | None = None
    """When, in the five fields of cron: "0 2 * * *" is every night at two."""
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    """The time zone of cron, as in Europe/Berlin; UTC when left out."""
    every: Duration | None = None
    """How often, in seconds or as in 6h, counted from midnight in UTC."""
    parameters: Parameters = Field(default=Parameters())
    """Parameters of each run; the whole pipeline when left out."""
    overlap: Literal["wait", "skip"] = "skip"
    """What a run does while the previous one is running: wait for it, or be skipped."""
    missed: Literal["run", "skip"] = "run"
    """What happens to times missed while no worker ran: one run for all of them, or none."""
    timeout: Duration | None = None
    """A run that takes longer ends as failed; in seconds or as in 2h, no limit when left out."""
    call_timeout: Duration | None = None
    """A model call, with its retries, is given up after this time; in seconds or as in 2m."""
    batch_wait: Wait | None = None
    """A run waits so long for batches, then another one collects them; 10m when left out."""
    publish: Annotated[str, AfterValidator(valid_location)] | None = None
    """Where the tables of each run are written as Parquet: a folder, relative to this file, or s3://."""
    report: Annotated[str, AfterValidator(_folder)] | None = None
    """The folder, relative to this file, for an HTML report of each run."""
    send: tuple[Annotated[Send, BeforeValidator(_send), WithJsonSchema(_SEND)], ...] = ()
    """Where the scores of each run are sent; addresses and keys come from the environment."""
    keep: Keep | None = None
    """Which runs stay in the store, with their published tables and reports; all when left out."""

    @model_validator(mode="after")
    def _has_one_schedule(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError("write one of cron and every")
        if self.timezone is not None and self.cron is None:
            raise ValueError("timezone belongs to cron")
        return self

    @property
    def interval(self) -> timedelta | None:
        """`every` as timedelta."""
        return None if self.every is None else to_timedelta(self.every)


class SharedLimit(YamlModel):
    """A limit for all runs together that name it in `shared_limit`."""

    rpm: int = Field(ge=1)
    """Requests a minute, divided among the runs."""


class Schedules(YamlModel):
    """The deployments of one file, and the limits that their runs share."""

    deployments: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], Deployment] = (
        Field(min_length=1, json_schema_extra={"additionalProperties": False})
    )
    """Name -> which pipeline runs when."""
    limits: dict[Annotated[str, Field(pattern=LIMIT_NAME)], SharedLimit] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """Name -> limit for all runs that name it."""
    notify: Notify | None = None
    """Where Prefect sends a message when a run failed or is late."""


def schedules_schema() -> dict[str, Any]:
    """JSON Schema of a schedules file, for editors."""
    return Schedules.model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "claimflow schedules",
    }


class Scheduled(NamedTuple):
    """A deployment with its name; paths in it are relative to `folder`."""

    name: str
    folder: Path
    deployment: Deployment

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the Prefect flow, with absolute paths."""
        asked = self.deployment.parameters.model_dump(mode="json", exclude_defaults=True)
        for name in ("store", "samples"):
            # Samples that are no file are a SELECT.
            if name in asked and (name == "store" or is_file(self.folder / asked[name])):
                asked[name] = self._absolute(asked[name])
        for name in ("timeout", "call_timeout", "batch_wait"):
            if getattr(self.deployment, name) is not None:
                asked[name] = getattr(self.deployment, name)
        publish = self.deployment.publish
        if publish is not None:
            asked["publish"] = publish if is_remote(publish) else self._absolute(publish)
        if self.deployment.report is not None:
            asked["report"] = self._absolute(self.deployment.report)
        if self.deployment.send:
            asked["send"] = [one.model_dump(mode="json") for one in self.deployment.send]
        if self.deployment.keep is not None:
            kept = self.deployment.keep.model_dump(exclude_none=True)
            asked |= {f"keep_{name}": number for name, number in kept.items()}
        return {"config": self._absolute(self.deployment.pipeline), **asked}

    def _absolute(self, path: str) -> str:
        return str((self.folder / path).resolve())


class ScheduleFile(NamedTuple):
    """A schedules file: its deployments in the order of the file, its limits by name, its block."""

    scheduled: list[Scheduled]
    limits: Mapping[str, SharedLimit]
    block: str | None
    """The Prefect block that sends notifications."""


def read_schedules(path: Path) -> ScheduleFile:
    """Read and check a schedules file.

    The pipelines that it names are checked, too. Raises `InputError` with every fault in the
    file and in its pipelines.
    """
    source = load_yaml(path, what="a schedules file")
    faults = list(source.faults)
    schedules: Schedules | None = None
    try:
        schedules = validate(Schedules, source.value)
    except ValidationError as error:
        faults += _faults(source, error)
    first: dict[str, str] = {}
    for name, values in source.section("deployments").items():
        other = first.setdefault(name.casefold(), name)
        if other != name:
            what = f"differs from {other} only by upper and lower case"
            faults.append(Fault(source.place("deployments", name), what, "choose another name"))
        if isinstance(values, dict) and isinstance(values.get("pipeline"), str):
            faults += _pipeline_faults(source, name, values)
    if faults or schedules is None:
        # Faults of a pipeline that is scheduled twice are listed once.
        raise InputError(sorted(dict.fromkeys(faults), key=_file_and_line))
    scheduled = [Scheduled(name, source.folder, one) for name, one in schedules.deployments.items()]
    block = schedules.notify.block if schedules.notify else None
    return ScheduleFile(scheduled, schedules.limits, block)


def limits_of(path: Path) -> Mapping[str, SharedLimit]:
    """The limits in a schedules file; empty if the file is not there or has faults."""
    try:
        return validate(Schedules, load_yaml(path).value).limits
    except (InputError, ValidationError):
        return {}


def _pipeline_faults(source: YamlSource, name: str, values: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of the pipeline that a deployment names, and of its parameters if they are valid."""
    at = ("deployments", name)
    path = source.folder / values["pipeline"]
    if not is_file(path):
        what = f"there is no file {values['pipeline']!r}"
        beside = path.parent.glob("*.yaml") if is_folder(path.parent) else ()
        near = [other.name for other in beside]
        yield Fault(source.place(*at, "pipeline"), what, one_of(path.name, near))
        return
    try:
        asked = validate(Parameters, values.get("parameters", {}))
    except ValidationError:
        # Reported with the faults of the schedules file.
        asked = Parameters()
    rerun = Rerun.of(asked)
    clashes = list(rerun.clashes(limit=asked.limit))
    for fault in clashes:
        names = " and ".join(map(_parameter, fault.place.split(" and ")))
        place = source.place(*at, "parameters")
        yield Fault(place, f"{names}: {fault.what}", fault.hint)
    try:
        pipeline = build_pipeline(load_yaml(path))
    except InputError as error:
        yield from error.faults
        return
    if not clashes:
        yield from _misfits(source, at, rerun, pipeline)


def _misfits(
    source: YamlSource, at: tuple[str, str], rerun: Rerun, pipeline: Pipeline
) -> Iterator[Fault]:
    for fault in rerun.misfits(pipeline):
        option = fault.place.partition(" ")[0]
        place = source.place(*at, "parameters", _parameter(option))
        yield Fault(place, fault.what.replace("--", ""), fault.hint.replace("--", ""))


def _parameter(option: str) -> str:
    """The parameter for an option of `claimflow run`."""
    return "from_step" if option == "--from" else option.removeprefix("--")


def _faults(source: YamlSource, error: ValidationError) -> Iterator[Fault]:
    for finding in error.errors(include_url=False):
        path = tuple(str(key) for key in finding["loc"] if key != "[key]")
        yield Fault(source.place(*path), *error_message(finding, path, _keys))


def _keys(path: tuple[str, ...]) -> Iterable[str]:
    """The keys of the mapping at `path`; none where they are names of one's own."""
    match path:
        case ():
            model: type[YamlModel] = Schedules
        case ("notify",):
            model = Notify
        case ("limits", _):
            model = SharedLimit
        case ("deployments", _):
            model = Deployment
        case ("deployments", _, "keep"):
            model = Keep
        case ("deployments", _, "send", *_):
            return ["metrics"]
        case ("deployments", _, "parameters"):
            model = Parameters
        case _:
            return []
    return list(model.model_fields)


def _file_and_line(fault: Fault) -> tuple[str, int]:
    file, _, rest = fault.place.partition(":")
    found = re.match(r"\d+", rest)
    return file, int(found[0]) if found else 0
