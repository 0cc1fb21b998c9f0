"""From a YAML file to a Pipeline: steps, checked whole, in an order that can run."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.engine.errors import Fault, InputError
from flows.engine.pipeline_schema import SamplesSource, pipeline_model, wired
from flows.engine.prompts import prompt_texts
from flows.engine.wiring import Step, Wiring, Written
from flows.engine.yaml_faults import yaml_faults
from flows.engine.yaml_source import YamlSource
from stages import REGISTER
from stages.base import Stage


@dataclass(frozen=True)
class Pipeline:
    """The steps of one YAML file, in an order that can run. Paths are absolute."""

    name: str
    source: YamlSource
    store: Path
    embedder: Path | None
    steps: tuple[Step, ...]


def build_pipeline(source: YamlSource) -> Pipeline:
    """The pipeline that a YAML file describes; raises `InputError` with every fault in it."""
    faults = list(source.faults)
    values: Any = None
    try:
        values = pipeline_model().model_validate_json(_json(source.value), strict=True)
    except ValidationError as error:
        faults += yaml_faults(source, error)
    wiring = Wiring(source, _written(source, faults))
    steps = wiring.steps()
    faults += wiring.faults
    if faults:
        raise InputError(sorted(faults, key=lambda fault: _line(fault.place)))
    embedder = source.folder / values.embedder.model if values.embedder else None
    return Pipeline(values.name, source, source.folder / values.store, embedder, steps)


def samples_source(source: YamlSource) -> SamplesSource | None:
    """Where the samples are, or None where the file does not say it rightly."""
    try:
        return SamplesSource.model_validate_json(_json(_section(source, "samples")), strict=True)
    except ValidationError:
        return None


def _written(source: YamlSource, faults: list[Fault]) -> dict[str, Written]:
    steps = _section(source, "steps")
    return {name: _step(source, name, values, faults) for name, values in steps.items()}


def _step(source: YamlSource, name: str, values: Any, faults: list[Fault]) -> Written:
    if name == "samples":
        what = "a step is named 'samples', as the samples themselves are"
        faults.append(Fault(source.place("steps", name), what, "choose another name"))
        return Written(name, None, None, {})
    values = values if isinstance(values, dict) else {}
    use = values.get("use")
    kind = REGISTER.get(use) if isinstance(use, str) else None
    stage = _stage(source, name, kind, values, faults) if kind else None
    return Written(name, kind, stage, values)


def _stage(
    source: YamlSource, name: str, kind: type[Stage], values: dict[str, Any], faults: list[Fault]
) -> Stage | None:
    wires = {"use", *wired(kind)}
    settings = {key: value for key, value in values.items() if key not in wires}
    settings |= prompt_texts(source, name, kind, settings, faults)
    try:
        return kind.model_validate_json(_json(settings), strict=True)
    except ValidationError as error:
        known = set(faults)
        found = yaml_faults(source, error, at=("steps", name))
        faults += [fault for fault in found if fault not in known]
        return None


def _section(source: YamlSource, key: str) -> dict[str, Any]:
    section = source.value.get(key) if isinstance(source.value, dict) else None
    return section if isinstance(section, dict) else {}


def _line(place: str) -> int:
    found = re.search(r":(\d+)", place)
    return int(found[1]) if found else 0


def _json(value: Any) -> str:
    """As JSON, whose strict reading takes a list for a tuple but no text for a number."""
    return json.dumps(value, default=str)
