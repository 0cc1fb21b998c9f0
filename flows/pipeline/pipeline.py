"""From a YAML file to a Pipeline: its steps, checked, in an order that can run."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.gates import (
    CANARY_AGREEMENT,
    CanarySource,
    Gate,
    gate_name_faults,
    misplaced_steady,
)
from claimflow.flows.pipeline.model_settings import (
    DEFAULT_JUDGE,
    EmbeddingEndpoint,
    HubModel,
    Judge,
    folder_or_hub_model,
)
from claimflow.flows.pipeline.prompts import prompt_texts
from claimflow.flows.pipeline.schema import (
    SamplesSource,
    WorkersSetting,
    named_inputs,
    pipeline_model,
)
from claimflow.flows.pipeline.step_judges import (
    reserved_name_faults,
    shared_votes,
    step_judges,
    without_judges,
)
from claimflow.flows.pipeline.wiring import Step, Wiring, WrittenStep
from claimflow.flows.pipeline.yaml_errors import yaml_faults
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Stage
from claimflow.stages.registry import STAGES


@dataclass(frozen=True)
class Pipeline:
    """The steps of one YAML file, in an order that can run. Paths are absolute.

    `judges` holds the language models by name. `embedder` is the folder of an encoder, a
    model behind an endpoint, or None for the embedded encoder; `entailment` the folder of a
    cross-encoder, one of the Hub, or None for the embedded model. With `read_copy` each run
    leaves a copy of the store to be read. `workers` says who does what needs no language model,
    and changes no row. `gates` holds what each metric's mean must be like, `canaries` says what
    the judges are tried on.
    """

    name: str
    source: YamlSource
    store: Path
    judges: Mapping[str, Judge]
    embedder: Path | EmbeddingEndpoint | None
    steps: tuple[Step, ...]
    read_copy: bool = True
    workers: WorkersSetting = field(default_factory=WorkersSetting)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    entailment: Path | HubModel | None = None
    canaries: CanarySource | None = None

    def shared_limits(self) -> dict[str, str]:
        """Where in the file a limit is named that runs share -> its name."""
        named: dict[tuple[str, ...], str | None] = {
            ("judge",) if name == DEFAULT_JUDGE else ("judges", name): judge.shared_limit
            for name, judge in self.judges.items()
        }
        if isinstance(self.embedder, EmbeddingEndpoint):
            named["embedder",] = self.embedder.shared_limit
        place = self.source.place
        return {place(*at, "shared_limit"): limit for at, limit in named.items() if limit}


def build_pipeline(source: YamlSource) -> Pipeline:
    """The pipeline that a YAML file describes; raises `InputError` with every fault in it."""
    faults = list(source.faults)
    values: Any = None
    try:
        values = pipeline_model().model_validate_json(_json(source.value), strict=True)
    except ValidationError as error:
        faults += yaml_faults(source, error)
    faults += reserved_name_faults(source)
    written = _written(source, faults)
    wiring = Wiring(source, written)
    steps = wiring.steps()
    faults += [*wiring.faults, *_misnamed_gates(source, written), *_untried(source, written)]
    if faults:
        raise InputError(sorted(faults, key=lambda fault: _line(fault.place)))
    judges = dict(values.judges) | ({DEFAULT_JUDGE: values.judge} if values.judge else {})
    embedder = values.embedder
    if embedder is not None and not isinstance(embedder, EmbeddingEndpoint):
        embedder = source.folder / embedder.model
    store = source.folder / values.store
    rest = {name: getattr(values, name) for name in ("read_copy", "workers", "gates", "canaries")}
    if values.entailment:
        rest["entailment"] = folder_or_hub_model(source.folder, values.entailment.model)
    return Pipeline(values.name, source, store, judges, embedder, steps, **rest)


def canary_source(source: YamlSource) -> CanarySource | None:
    """Where the canaries are, or None where the file has none or does not say it rightly."""
    try:
        return CanarySource.model_validate_json(_json(source.section("canaries")), strict=True)
    except ValidationError:
        return None


def samples_source(source: YamlSource) -> SamplesSource | None:
    """Where the samples are, or None where the file does not say it rightly."""
    try:
        return SamplesSource.model_validate_json(_json(source.section("samples")), strict=True)
    except ValidationError:
        return None


def _written(source: YamlSource, faults: list[Fault]) -> dict[str, WrittenStep]:
    steps = source.section("steps")
    return {name: _step(source, name, values, faults) for name, values in steps.items()}


def _step(source: YamlSource, name: str, values: Any, faults: list[Fault]) -> WrittenStep:
    if name == "samples":
        what = "a step is named 'samples', as the samples themselves are"
        faults.append(Fault(source.place("steps", name), what, "choose another name"))
        return WrittenStep(name, None, None, {})
    values = values if isinstance(values, dict) else {}
    use = values.get("use")
    kind = STAGES.get(use) if isinstance(use, str) else None
    judges = step_judges(source, name, kind, values, faults) if kind else ()
    stage = _stage(source, name, kind, values, judges, faults) if kind else None
    return WrittenStep(name, kind, stage, values, judges)


def _stage(
    source: YamlSource,
    name: str,
    kind: type[Stage],
    values: dict[str, Any],
    judges: tuple[str, ...],
    faults: list[Fault],
) -> Stage | None:
    wires = {"use", *named_inputs(kind)}
    written = without_judges(kind, values)
    settings = {key: value for key, value in written.items() if key not in wires}
    settings |= prompt_texts(source, name, kind, settings, faults, judged=bool(judges))
    if len(judges) > 1:
        settings["votes"] = shared_votes(source, name, settings, judges, faults)
    try:
        return kind.model_validate_json(_json(settings), strict=True)
    except ValidationError as error:
        known = set(faults)
        found = yaml_faults(source, error, at=("steps", name))
        faults += [fault for fault in found if fault not in known]
        return None


def _misnamed_gates(source: YamlSource, steps: Mapping[str, WrittenStep]) -> Iterator[Fault]:
    """Gates on what no step makes; none is told while a step's stage is not known."""
    makers: dict[str, list[str]] = {}
    for name, step in steps.items():
        if step.kind is None:
            return
        for metric in step.kind.metrics:
            makers.setdefault(metric, []).append(name)
        if step.kind.canary_settings is not None and source.section("canaries"):
            makers.setdefault(CANARY_AGREEMENT, []).append(name)
    gates = source.section("gates")
    for gate, what, hint in (*misplaced_steady(gates), *gate_name_faults(gates, makers)):
        yield Fault(source.place("gates", gate), what, hint)


def _untried(source: YamlSource, steps: Mapping[str, WrittenStep]) -> Iterator[Fault]:
    """Canaries with no judge to put them to; none is told while a step's stage is not known."""
    kinds = [step.kind for step in steps.values()]
    judged = any(kind is None or kind.canary_settings is not None for kind in kinds)
    if source.section("canaries") and not judged:
        hint = "add a step that uses verify_claims, or remove them"
        yield Fault(source.place("canaries"), "no step verifies claims", hint)


def _line(place: str) -> int:
    found = re.search(r":(\d+)", place)
    return int(found[1]) if found else 0


def _json(value: Any) -> str:
    """As JSON, whose strict reading takes a list for a tuple but no text for a number."""
    return json.dumps(value, default=str)
