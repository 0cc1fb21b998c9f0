"""What a schedules file says: which pipeline runs when, and what if it cannot."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from claimflow.flows.engine.config.pipeline import Pipeline, build_pipeline
from claimflow.flows.engine.config.rerun import Rerun
from claimflow.flows.engine.config.schedules_schema import (
    Deployment,
    Parameters,
    Schedules,
    SharedLimit,
)
from claimflow.flows.engine.config.yaml_source import YamlSource, load_yaml
from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.existing import is_file, is_folder
from claimflow.flows.engine.object_storage import is_remote

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
        yield Fault(place, f"{words}: {fault.what}", fault.right)
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
        yield Fault(place, fault.what.replace("--", ""), fault.right.replace("--", ""))


def _parameter(option: str) -> str:
    return _NAME_OF.get(option, option.removeprefix("--"))


def _faults(source: YamlSource, error: ValidationError) -> Iterator[Fault]:
    for finding in error.errors(include_url=False):
        path = tuple(str(key) for key in finding["loc"] if key != "[key]")
        given, context = finding["input"], finding.get("ctx", {})
        what = f"{given!r} is not right here"
        right = finding["msg"][0].lower() + finding["msg"][1:]
        match finding["type"]:
            case "missing":
                what, right = f"lacks {path[-1]!r}", f"write {path[-1]}: ..."
            case "extra_forbidden":
                what, right = f"unknown key {path[-1]!r}", one_of(path[-1], _keys(path))
            case "model_type" | "dict_type":
                what = "is empty" if given is None else "is no mapping"
                right = f"write {', '.join(_keys((*path, '')))}: ..."
            case "too_short":
                what, right = "is empty", "write at least one"
            case "literal_error":
                what, right = f"{given!r} is not allowed", f"write {context['expected']}"
            case "value_error":
                what, right = "is not right", str(context["error"])
            case "string_pattern_mismatch":
                what, right = f"{given!r} is no name", "use letters, digits, - and _"
        yield Fault(source.place(*path), what, right)


def _keys(path: tuple[str, ...]) -> list[str]:
    """The keys that may stand beside the last of `path`."""
    of_name = SharedLimit if path[0] == "limits" else Deployment
    known: dict[int, Any] = {1: Schedules, 3: of_name, 4: Parameters}
    return list(known[len(path)].model_fields) if len(path) in known else ["NAME"]


def _file_and_line(fault: Fault) -> tuple[str, int]:
    file, _, rest = fault.place.partition(":")
    found = re.match(r"\d+", rest)
    return file, int(found[0]) if found else 0
