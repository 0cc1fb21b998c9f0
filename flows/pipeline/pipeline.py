"""From a YAML file to a Pipeline: its steps, checked, in an order that can run.

`build_pipeline` validates the whole file by its schema (schema.py), reads each step with its
judges and prompts (prompts.py), and connects the steps (wiring.py). Faults of all these are
collected and raised together.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.object_storage import is_remote
from claimflow.flows.pipeline.gates import (
    CANARY_AGREEMENT,
    CanarySource,
    FailWhen,
    Gate,
    gate_name_faults,
    misplaced_steady,
    unreachable_limits,
)
from claimflow.flows.pipeline.limits import STEPS, too_many
from claimflow.flows.pipeline.model_settings import (
    DEFAULT_JUDGE,
    EMBEDDED,
    EMBEDDER,
    PROVIDER_OBJECTS,
    EmbeddingEndpoint,
    Endpoint,
    EntailmentSource,
    Judge,
    folder_or_hub_model,
)
from claimflow.flows.pipeline.prompts import prompt_texts
from claimflow.flows.pipeline.schema import (
    WorkersSetting,
    asks_llm,
    can_cascade,
    can_vote,
    named_inputs,
    pipeline_model,
)
from claimflow.flows.pipeline.wiring import Step, Wiring, WrittenStep
from claimflow.flows.pipeline.yaml_errors import validate, yaml_faults
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Stage
from claimflow.stages.plugins import PluginError, describe, is_reference, load_object
from claimflow.stages.registry import STAGES, find_stage
from claimflow.stages.tools import Embedder

Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True)
class Pipeline:
    """The steps of one YAML file, in an order that can run. Paths are absolute.

    `judges` holds the language models by name. `embedder` is the folder of an encoder, a
    model behind an endpoint, or None for the embedded encoder; `entailment` is a cross-encoder in a
    folder or of the Hub, or None for the embedded model. With `read_copy` each run leaves a copy of
    the store to read. `ledger` is the address of the ledger that runs on several machines share.
    `workers` sets where steps without a language model run; it changes no row.
    `fail_when` says when a run fails for its failed rows; None is never. `gates` are the limits on
    the mean of each metric, `canaries` the labelled pairs that judges are checked with.
    """

    name: str
    source: YamlSource
    store: Path
    judges: Mapping[str, Judge]
    embedder: Path | EmbeddingEndpoint | None
    steps: tuple[Step, ...]
    read_copy: bool = True
    ledger: str | None = None
    workers: WorkersSetting = field(default_factory=WorkersSetting)
    fail_when: FailWhen | None = field(default_factory=FailWhen)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    entailment: EntailmentSource | None = None
    canaries: CanarySource | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The models behind endpoints, by the name that their calls are recorded under."""
        embedder = {EMBEDDER: self.embedder} if isinstance(self.embedder, Endpoint) else {}
        return {**self.judges, **embedder}

    def endpoints_of(self, step: Step) -> dict[str, Endpoint]:
        """The endpoints that a step calls, by name."""
        embeds = Embedder in step.stage.tools.values()
        names = (*step.judges, *([EMBEDDER] if embeds else []))
        return {name: self.endpoints[name] for name in names if name in self.endpoints}

    def endpoint_place(self, name: str, *setting: str) -> str:
        """Where the file describes the endpoint `name`, or a setting of it."""
        section = (name,) if name in (DEFAULT_JUDGE, EMBEDDER) else ("judges", name)
        return self.source.place(*section, *setting)

    def shared_limits(self) -> dict[str, str]:
        """Shared limits that the file names: place in the file -> name of the limit."""
        return {
            self.endpoint_place(name, "shared_limit"): endpoint.shared_limit
            for name, endpoint in self.endpoints.items()
            if endpoint.shared_limit
        }


def build_pipeline(source: YamlSource) -> Pipeline:
    """The pipeline that a YAML file describes; raises `InputError` with every fault in it."""
    faults = list(source.faults)
    count = len(source.section("steps"))
    if count > STEPS:
        what = too_many(count, STEPS, "steps")
        raise InputError([Fault(source.place("steps"), what, "write several pipelines")])
    values: Any = None
    kinds = _find_stages(source, faults)
    others = {use: kind for use, kind in kinds.items() if use not in STAGES}
    try:
        values = validate(pipeline_model(tuple(others.items())), source.value)
    except ValidationError as error:
        faults += yaml_faults(source, error)
    faults += [*_reserved_name_faults(source), *_provider_faults(source)]
    written = {
        step.name: step
        for name, values in source.section("steps").items()
        for step in _read_step(source, name, values, kinds, faults)
    }
    wiring = Wiring(source, written)
    steps = wiring.steps()
    faults += [*wiring.faults, *_gate_faults(source, written), *_canary_faults(source, written)]
    if faults:
        raise InputError(sorted(faults, key=lambda fault: _line(fault.place)))
    judges = ({DEFAULT_JUDGE: values.judge} if values.judge else {}) | values.judges
    embedder = values.embedder
    if embedder is not None and not isinstance(embedder, EmbeddingEndpoint):
        embedder = source.folder / embedder.model
    store = source.folder / values.store
    names = ("read_copy", "ledger", "workers", "fail_when", "gates", "canaries")
    rest = {name: getattr(values, name) for name in names}
    folder = values.workers.folder
    if folder is not None and not is_remote(folder):
        folder = str((source.folder / folder).absolute())
    rest["workers"] = values.workers.model_copy(update={"folder": folder})
    if values.entailment:
        place = folder_or_hub_model(source.folder, values.entailment.model)
        rest["entailment"] = EntailmentSource(place, values.entailment.form())
    return Pipeline(values.name, source, store, judges, embedder, steps, **rest)


def valid_section(source: YamlSource, key: str, model: type[Section]) -> Section | None:
    """The section `key` of a pipeline file, or None where it is missing or not valid."""
    try:
        return validate(model, source.section(key))
    except ValidationError:
        return None


def _find_stages(source: YamlSource, faults: list[Fault]) -> dict[str, type[Stage] | None]:
    """The stages of a file by their `use`; None for one that cannot be loaded, which is a fault.

    Unknown names are left out.
    """
    found: dict[str, type[Stage] | None] = {}
    for name, values in source.section("steps").items():
        use = values.get("use") if isinstance(values, dict) else None
        if not isinstance(use, str) or found.get(use) is not None:
            continue
        try:
            stage = find_stage(use, source.folder)
        except PluginError as error:
            faults.append(Fault(source.place("steps", name, "use"), error.what, error.hint))
            found[use] = None
        else:
            if stage is not None:
                found[use] = stage
    return found


def _provider_faults(source: YamlSource) -> Iterator[Fault]:
    """Judge providers named `module:Name` that cannot be imported; they may lie beside the file."""
    places = [("judge",), ("embedder",), *(("judges", name) for name in source.section("judges"))]
    for place in places:
        values: Any = source.section(place[0])
        for key in place[1:]:
            values = values[key]
        provider = values.get("provider") if isinstance(values, dict) else None
        if not isinstance(provider, str) or provider in PROVIDER_OBJECTS:
            continue
        if is_reference(provider):
            try:
                load_object(provider, source.folder)
            except PluginError as error:
                yield Fault(source.place(*place, "provider"), error.what, error.hint)


def _read_step(
    source: YamlSource,
    name: str,
    values: Any,
    kinds: Mapping[str, type[Stage] | None],
    faults: list[Fault],
) -> Iterator[WrittenStep]:
    """The step `name` with its stage, judges and prompts; adds what is wrong to `faults`.

    A step whose stage is judged by another one is two: that one comes first.
    """
    if name == "samples":
        what = "a step cannot be named 'samples', the name of the samples themselves"
        faults.append(Fault(source.place("steps", name), what, "choose another name"))
        yield WrittenStep(name, None, None, {})
        return
    values = values if isinstance(values, dict) else {}
    use = values.get("use")
    kind = kinds.get(use) if isinstance(use, str) else None
    if kind is None or kind.verdicts_by is None:
        yield _read_part(source, name, kind, values, faults)
        return
    first = f"{name}_verdicts"
    if first in source.section("steps"):
        what = f"the verdicts of the step {name!r} have this name"
        faults.append(Fault(source.place("steps", first), what, "choose another name"))
    of_judge = {*kind.verdicts_by.model_fields, "judge"}
    of_both = {"use", *named_inputs(kind), *kind.model_fields}
    # A key that neither has is a mistake of the first part alone, which then tells no other.
    only_own = of_both - of_judge - {*named_inputs(kind)}
    judged = {one: values[one] for one in values if one not in only_own}
    own = {one: values[one] for one in values if one in of_both}
    yield _read_part(source, name, kind.verdicts_by, judged, faults)._replace(
        name=first, written_as=name
    )
    yield _read_part(source, name, kind, own | {"verdicts": first}, faults)


def _read_part(
    source: YamlSource,
    name: str,
    kind: type[Stage] | None,
    values: dict[str, Any],
    faults: list[Fault],
) -> WrittenStep:
    judges = _step_judges(source, name, kind, values, faults) if kind else ()
    stage = _build_stage(source, name, kind, values, judges, faults) if kind else None
    return WrittenStep(name, kind, stage, values, judges)


def _build_stage(
    source: YamlSource,
    name: str,
    kind: type[Stage],
    values: dict[str, Any],
    judges: tuple[str, ...],
    faults: list[Fault],
) -> Stage | None:
    no_settings = {"use", *kind.inputs}
    written = _without_judges(kind, values)
    settings = {key: value for key, value in written.items() if key not in no_settings}
    settings |= prompt_texts(source, name, kind, settings, faults, judged=bool(judges))
    if "metric" in kind.model_fields:
        settings.setdefault("metric", name)
    if len(judges) > 1:
        settings["votes"] = _shared_votes(source, name, settings, judges, faults)
    try:
        stage = validate(kind, settings)
        if stage.source is not None:
            _try_methods(stage)
    except ValidationError as error:
        known = set(faults)
        found = yaml_faults(source, error, at=("steps", name))
        faults += [fault for fault in found if fault not in known]
        return None
    except Exception as error:
        if kind.source is None:
            raise
        what = f"{values['use']} cannot be used: {describe(error, module=kind.__module__)}"
        faults.append(Fault(source.place("steps", name, "use"), what, "mend it"))
        return None
    return stage


def _try_methods(stage: Stage) -> None:
    """Call what the engine asks a stage before a run; raises what a stage of a package raises."""
    _ = stage.required_fields(), stage.ignores(), stage.expected_inputs(), stage.needed_tools
    _ = stage.claims_of, stage.premise, stage.form(), stage.without_llm(), stage.without_cascade()


def _reserved_name_faults(source: YamlSource) -> list[Fault]:
    """Judges whose name is reserved for another model."""
    reserved = {
        DEFAULT_JUDGE: "the judge of the whole pipeline",
        EMBEDDED: "the judge without a language model",
        EMBEDDER: "the embedding model in audit.calls",
    }
    return [
        Fault(
            source.place("judges", name),
            f"{name!r} is reserved for {reserved[name]}",
            "choose another name",
        )
        for name in source.section("judges")
        if name in reserved
    ]


def _step_judges(
    source: YamlSource,
    step: str,
    kind: type[Stage],
    values: Mapping[str, Any],
    faults: list[Fault],
) -> tuple[str, ...]:
    """Names of the language models of a step: those it names, or the judge of the pipeline.

    Empty where the step uses no language model.
    """
    if not asks_llm(kind):
        return ()
    known = {EMBEDDED, *source.section("judges")}
    if source.section("judge"):
        known.add(DEFAULT_JUDGE)
    at, written = _judge_setting(kind, values)
    if at and "judge" in values:
        what = "cannot be beside a cascade"
        faults.append(Fault(source.place("steps", step, "judge"), what, "move it into the cascade"))
    chosen = written or (DEFAULT_JUDGE if DEFAULT_JUDGE in known else EMBEDDED)
    several = chosen if can_vote(kind) and isinstance(chosen, list) else [chosen]
    names = [name for name in several if isinstance(name, str)]
    place = source.place("steps", step, *at, "judge")
    faults += [
        Fault(place, f"there is no judge {name!r}", one_of(name, known))
        for name in names
        if name not in known
    ]
    faults += _voter_faults(place, names)
    return tuple(name for name in dict.fromkeys(names) if name != EMBEDDED)


def _without_judges(kind: type[Stage], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a step as written, without its judges."""
    if not asks_llm(kind):
        return dict(values)
    settings = {name: value for name, value in values.items() if name != "judge"}
    if _judge_setting(kind, values)[0]:
        inner = values["cascade"].items()
        settings["cascade"] = {name: value for name, value in inner if name != "judge"}
    return settings


def _judge_setting(kind: type[Stage], values: Mapping[str, Any]) -> tuple[tuple[str, ...], Any]:
    """Where the judges of a step are written, in its cascade or in the step, and their value."""
    cascade = values.get("cascade")
    if can_cascade(kind) and isinstance(cascade, dict):
        return ("cascade",), cascade.get("judge")
    return (), values.get("judge")


def _shared_votes(
    source: YamlSource,
    step: str,
    settings: Mapping[str, Any],
    judges: tuple[str, ...],
    faults: list[Fault],
) -> Any:
    """The number of votes of a step with several judges; by default one of each."""
    written, of = settings.get("votes", len(judges)), len(judges)
    if isinstance(written, int) and written % of:
        what = f"votes: {written} cannot be shared equally by {of} judges"
        hint = f"write {of} or a multiple of it, or remove votes"
        faults.append(Fault(source.place("steps", step, "votes"), what, hint))
    return written


def _voter_faults(place: str, names: list[str]) -> list[Fault]:
    """Judges that cannot be in a list of several."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    found = [
        Fault(place, f"names the judge {name!r} twice", "write votes: N for several votes of one")
        for name in twice
    ]
    if EMBEDDED in names and len(names) > 1:
        what = f"the judge {EMBEDDED!r} cannot vote with language models"
        found.append(Fault(place, what, f"remove {EMBEDDED}"))
    return found


def _gate_faults(source: YamlSource, steps: Mapping[str, WrittenStep]) -> Iterator[Fault]:
    """Faults of gates. A step whose stage is unknown may make any metric."""
    makers: dict[str, list[str]] = {}
    ranges: dict[str, set[tuple[float, float] | None]] = {}
    possible: set[str] = set()
    for name, step in steps.items():
        if step.kind is None:
            metrics = {metric for stage in STAGES.values() for metric in stage.metrics}
            possible |= {name, *metrics, *(f"{name}.{metric}" for metric in metrics)}
            if is_reference(str(step.values.get("use"))):
                possible |= source.section("gates").keys()
            continue
        own = "metric" in step.kind.model_fields
        names = (str(step.values.get("metric", name)),) if own else step.kind.metrics
        made = dict.fromkeys(names, step.kind.metric_range)
        if step.kind.canary_settings is not None and source.section("canaries"):
            made[CANARY_AGREEMENT] = (0.0, 1.0)
        for metric, metric_range in made.items():
            makers.setdefault(metric, []).append(name)
            for gate in (metric, f"{name}.{metric}"):
                ranges.setdefault(gate, set()).add(metric_range)
    # A metric of several steps with different ranges has no known one.
    known = {gate: one for gate, (one, *more) in ranges.items() if one is not None and not more}
    gates = source.section("gates")
    for gate, what, hint in (
        *misplaced_steady(gates),
        *gate_name_faults(gates, makers, possible=possible),
    ):
        yield Fault(source.place("gates", gate), what, hint)
    for gate, side, what, hint in unreachable_limits(gates, known):
        yield Fault(source.place("gates", gate, side), what, hint)


def _canary_faults(source: YamlSource, steps: Mapping[str, WrittenStep]) -> Iterator[Fault]:
    """Canaries without a step that verifies claims; unchecked while some stage is unknown."""
    kinds = [step.kind for step in steps.values()]
    judged = any(kind is None or kind.canary_settings is not None for kind in kinds)
    if source.section("canaries") and not judged:
        hint = "add a step that uses verify_claims, or remove them"
        yield Fault(source.place("canaries"), "no step verifies claims", hint)


def _line(place: str) -> int:
    found = re.search(r":(\d+)", place)
    return int(found[1]) if found else 0
