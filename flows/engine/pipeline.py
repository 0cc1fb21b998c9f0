"""From a YAML file to a Pipeline: steps, checked whole, in an order that can run."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.engine.endpoints import DEFAULT_JUDGE, EMBEDDED, EmbeddingEndpoint, Judge
from flows.engine.errors import Fault, InputError, one_of
from flows.engine.pipeline_schema import SamplesSource, asks_llm, pipeline_model, wired
from flows.engine.prompts import prompt_texts
from flows.engine.wiring import Step, Wiring, Written
from flows.engine.yaml_faults import yaml_faults
from flows.engine.yaml_source import YamlSource
from stages import REGISTER
from stages.base import Stage


@dataclass(frozen=True)
class Pipeline:
    """The steps of one YAML file, in an order that can run. Paths are absolute.

    `judges` holds the language models by name. `embedder` is the folder of an encoder, a
    model behind an endpoint, or None for the embedded encoder.
    """

    name: str
    source: YamlSource
    store: Path
    judges: Mapping[str, Judge]
    embedder: Path | EmbeddingEndpoint | None
    steps: tuple[Step, ...]


def build_pipeline(source: YamlSource) -> Pipeline:
    """The pipeline that a YAML file describes; raises `InputError` with every fault in it."""
    faults = list(source.faults)
    values: Any = None
    try:
        values = pipeline_model().model_validate_json(_json(source.value), strict=True)
    except ValidationError as error:
        faults += yaml_faults(source, error)
    faults += _taken_names(source)
    wiring = Wiring(source, _written(source, faults))
    steps = wiring.steps()
    faults += wiring.faults
    if faults:
        raise InputError(sorted(faults, key=lambda fault: _line(fault.place)))
    judges = dict(values.judges) | ({DEFAULT_JUDGE: values.judge} if values.judge else {})
    embedder = values.embedder
    if embedder is not None and not isinstance(embedder, EmbeddingEndpoint):
        embedder = source.folder / embedder.model
    return Pipeline(values.name, source, source.folder / values.store, judges, embedder, steps)


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
    judge = _judge(source, name, values, faults) if kind and asks_llm(kind) else None
    stage = _stage(source, name, kind, values, judge, faults) if kind else None
    return Written(name, kind, stage, values, judge)


def _taken_names(source: YamlSource) -> list[Fault]:
    """Judges under `judges` whose name already means another model."""
    taken = {DEFAULT_JUDGE: "that of the whole pipeline", EMBEDDED: "the one without a model"}
    taken["embedder"] = "the model of embeddings in audit.calls"
    return [
        Fault(
            source.place("judges", name),
            f"a judge is named {name!r}, as is {taken[name]}",
            "choose another name",
        )
        for name in _section(source, "judges")
        if name in taken
    ]


def _judge(
    source: YamlSource, name: str, values: Mapping[str, Any], faults: list[Fault]
) -> str | None:
    """The judge that a step asks: the one it names, or else that of the whole pipeline."""
    known = {EMBEDDED, *_section(source, "judges")}
    if _section(source, "judge"):
        known.add(DEFAULT_JUDGE)
    chosen = values.get("judge") or (DEFAULT_JUDGE if DEFAULT_JUDGE in known else EMBEDDED)
    if isinstance(chosen, str) and chosen not in known:
        what = f"there is no judge {chosen!r}"
        faults.append(Fault(source.place("steps", name, "judge"), what, one_of(chosen, known)))
    return chosen if chosen != EMBEDDED else None


def _stage(
    source: YamlSource,
    name: str,
    kind: type[Stage],
    values: dict[str, Any],
    judge: str | None,
    faults: list[Fault],
) -> Stage | None:
    wires = {"use", *wired(kind), *(("judge",) if asks_llm(kind) else ())}
    settings = {key: value for key, value in values.items() if key not in wires}
    settings |= prompt_texts(source, name, kind, settings, faults, judged=judge is not None)
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
