"""The judges of a step, and how they share its votes."""

from collections.abc import Mapping
from typing import Any

from claimflow.flows.errors import Fault, one_of
from claimflow.flows.pipeline.model_settings import DEFAULT_JUDGE, EMBEDDED, EMBEDDER
from claimflow.flows.pipeline.schema import asks_llm, can_cascade, can_vote
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Stage


def reserved_name_faults(source: YamlSource) -> list[Fault]:
    """Judges whose name is reserved for another model."""
    reserved = {
        DEFAULT_JUDGE: "that of the whole pipeline",
        EMBEDDED: "the one without a model",
        EMBEDDER: "the model of embeddings in audit.calls",
    }
    return [
        Fault(
            source.place("judges", name),
            f"a judge is named {name!r}, as is {reserved[name]}",
            "choose another name",
        )
        for name in source.section("judges")
        if name in reserved
    ]


def step_judges(
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
        what = "is written beside a cascade"
        faults.append(Fault(source.place("steps", step, "judge"), what, "write it in the cascade"))
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


def without_judges(kind: type[Stage], values: Mapping[str, Any]) -> dict[str, Any]:
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


def shared_votes(
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
        what = f"the judge {EMBEDDED!r} has no vote beside language models"
        found.append(Fault(place, what, f"remove {EMBEDDED}"))
    return found
