"""Pipelines from names of metrics: the steps that they need, connected as in a pipeline file."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.pipeline.schema import STEP_NAME, named_inputs
from claimflow.stages.base import Stage
from claimflow.stages.metric import Metric
from claimflow.stages.plugins import PluginError
from claimflow.stages.registry import STAGES, find_stage, reference_to

SUMMARY: Final = "summary"

_CLAIMS: Final = {"use": "decompose_claims", "atomicity": "low", "coverage": "high"}
_JUDGED_CLAIMS: Final = {"atomicity": "high"}
"""The claims that agree best with people: whole sentences by rules, their parts by a model."""

_F2: Final = {"beta": 2, "recall_of": "reference"}
_BY_PROBABILITY: Final = {"count": "probabilities"}
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "factual_correctness": _F2 | _BY_PROBABILITY,
    "answer_correctness": _F2 | _BY_PROBABILITY,
    "faithfulness": _BY_PROBABILITY,
    "context_recall": _BY_PROBABILITY,
}
"""The settings of a metric that is named without any: those that agree best with people."""

_PASSAGES: Final = {"against": "retrieved_contexts", "premises": "each"}
_ANSWERS: Final = ("response", "reference")
_CITED: Final = {
    "against": "retrieved_contexts",
    "premises": "cited",
    "citations": "response_citations",
}

_INPUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "response_claims": {**_CLAIMS, "of": "response"},
    "reference_claims": {**_CLAIMS, "of": "reference"},
    "response_citations": {"use": "find_citations", "response_claims": "response_claims"},
    **{
        f"{side}_in_{name}": {"use": "verify_claims", "claims": f"{side}_claims", **premise}
        for side, name, premise in (
            ("response", "reference", {"against": "reference"}),
            ("reference", "response", {"against": "response"}),
            ("response", "contexts", {"against": "retrieved_contexts"}),
            ("reference", "contexts", {"against": "retrieved_contexts"}),
            ("response", "passages", _PASSAGES),
            ("reference", "passages", _PASSAGES),
            ("response", "cited", _CITED),
        )
    },
    "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
    "context_matches": {"use": "lexical_match", "against": "retrieved_contexts"},
    "reference_matches": {"use": "lexical_match", "against": "reference", "unit": "text"},
}
"""The steps that inputs of score stages are read from, by the name of the input."""


_USUAL: Final = (
    "factual_correctness",
    "answer_correctness",
    "semantic_similarity",
    "faithfulness",
    "context_recall",
    "deterministic_faithfulness",
    "deterministic_correctness",
)
"""The metrics of the quickstart, in its order."""


def compose(
    metrics: Iterable[str | Mapping[str, Any] | type[Stage] | Metric[..., Any]],
    *,
    slices: Iterable[str] = (),
    judged: bool = False,
    talks: bool = False,
    folder: Path | None = None,
) -> dict[str, Any]:
    """The `steps` section of a pipeline file with these metrics, and a summary of their scores.

    A metric is the name of a stage that makes scores (`faithfulness`), one of its metrics
    (`rouge_l_f1`), a metric of one's own (`module:Name`, where the module may be in `folder`, or
    the class or decorated function itself), or a mapping with `use` and settings; one with the
    setting `metric`, as of a rubric, has that as the name of its step. A metric that is no mapping
    has the settings of the quickstart, a mapping those that it holds. `slices` are metadata fields
    to summarise by. `judged` says that the pipeline has a language model, which splits claims
    finer than rules do, and `talks` that samples have earlier messages, by which their texts are
    understood. Claims that come with the samples are used in place of decomposing their
    texts.

    Raises `InputError` for names that are no metric, twice the same one, and a metric with an
    input that no known step makes.
    """
    faults: list[Fault] = []
    scores: dict[str, dict[str, Any]] = {}
    inputs: set[str] = set()
    missing: list[tuple[type[Stage], str]] = []
    for metric in metrics:
        try:
            step = _step_of(metric)
            stage = find_stage(str(step.get("use", "")), folder)
        except PluginError as error:
            faults.append(Fault("metrics", error.what, error.hint))
            continue
        if stage is None or not makes_scores(stage):
            hint = one_of(str(step.get("use") or metric), metric_names())
            faults.append(Fault("metrics", f"there is no metric {_shown(metric)}", hint))
            continue
        own = "metric" in stage.model_fields and "metric" in step
        name = str(step["metric"]) if own else _step_name(stage)
        faults += _name_faults(name, stage, step, scores)
        scores[name] = step
        named = {step[name] for name in named_inputs(stage) if step.get(name) in _INPUTS}
        for name in sorted(named | (set(needed_inputs(stage, step)) - set(step))):
            if name in _INPUTS:
                inputs |= {name, *_read_by(name)}
            else:
                missing.append((stage, name))
    # A metric may read the scores of another one.
    faults += [_missing_step(stage, name) for stage, name in missing if name not in scores]
    if faults:
        raise InputError(faults)
    if not scores:
        raise InputError([Fault("metrics", "is empty", "name one or more metrics")])
    steps = _input_steps(inputs, judged=judged, talks=talks)
    summary = {"use": "summarize_scores", **({"slices": list(slices)} if slices else {})}
    return {**steps, **scores, SUMMARY: summary}


def _missing_step(stage: type[Stage], name: str) -> Fault:
    """The fault of a metric with an input `name` that no metric and no known step makes."""
    row = named_inputs(stage)[name].row
    if name in STAGES and STAGES[name].makes is row:
        hint = f"name {name} among the metrics, too"
    else:
        known = [one for one, step in _INPUTS.items() if STAGES[str(step["use"])].makes is row]
        hint = "write a pipeline with that step"
        hint += f", or name it {' or '.join(known)}" if known else ""
    return Fault("metrics", f"{stage.use} needs a step {name!r}", hint)


def _input_steps(names: Collection[str], *, judged: bool, talks: bool) -> dict[str, dict[str, Any]]:
    """The steps that are named like inputs of score stages."""
    steps = {name: dict(step) for name, step in _INPUTS.items() if name in names}
    for step in steps.values():
        if step["use"] == _CLAIMS["use"]:
            step.update(_JUDGED_CLAIMS if judged else {})
        if talks and (
            step["use"] == _CLAIMS["use"]
            or (step["use"] == "verify_claims" and step["against"] in _ANSWERS)
        ):
            step["context"] = "conversation"
    if "response_citations" in steps:
        steps["response_claims"]["citation_markers"] = "remove"
    return steps


def _name_faults(
    name: str, stage: type[Stage], step: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> Iterator[Fault]:
    """Faults of a step whose name another one has."""
    rename = "give it another name: @claimflow.metric(name=...)"
    other = others.get(name, step)
    if name in (*_INPUTS, SUMMARY):
        yield Fault("metrics", f"another step is named {name}", rename)
    elif other["use"] != step["use"]:
        yield Fault("metrics", f"two metrics are named {name}", rename)
    elif other != step:
        several = "metric" in stage.model_fields
        hint = "give each a metric" if several else "write a pipeline with two steps"
        yield Fault("metrics", f"{name} is named with two settings", hint)


def missing_fields(
    metric: str, fields: Collection[str], *, folder: Path | None = None
) -> list[str]:
    """The sample fields that a metric needs and that are not among `fields`."""
    needed: set[str] = set()
    for step in compose([metric], folder=folder).values():
        stage = find_stage(step["use"], folder)
        if stage is None:
            raise KeyError(step["use"])
        settings = {name: value for name, value in step.items() if name in stage.model_fields}
        needed |= stage.model_validate(settings).required_fields()
    return sorted(needed - set(fields))


def metrics_for(fields: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """The metrics of the quickstart that samples with `fields` can have, and why not the others.

    The others are given by name, with the fields that they lack.
    """
    missing = {metric: missing_fields(metric, fields) for metric in _USUAL}
    lacking = {
        metric: f"no sample has {' or '.join(names)}" for metric, names in missing.items() if names
    }
    return [metric for metric in _USUAL if metric not in lacking], lacking


def metric_names() -> list[str]:
    """The names that `compose` knows: stages that make scores, and the metrics that they make.

    A rubric has no name alone: it says what is judged.
    """
    stages = [one for one in STAGES.values() if makes_scores(one) and one.verdicts_by is None]
    return sorted({name for stage in stages for name in (stage.use, *stage.metrics)})


def makes_scores(stage: type[Stage]) -> bool:
    """Whether the rows of a stage are scores of samples."""
    return stage.makes.table == "scores"


def needed_inputs(stage: type[Stage], settings: Mapping[str, Any]) -> list[str]:
    """The inputs, besides the samples, that a stage reads with these settings.

    Settings that are not valid count as the defaults: the check of the pipeline reports them.
    """
    known = {name: value for name, value in settings.items() if name in stage.model_fields}
    try:
        ignored = stage.model_validate(known).ignores()
    except ValueError:
        ignored = frozenset()
    return [name for name in named_inputs(stage) if name not in ignored | stage.optional]


def _read_by(name: str) -> set[str]:
    """The steps that the step of an input reads, and those that they read."""
    read = {str(value) for value in _INPUTS[name].values() if value in _INPUTS}
    return read.union(*map(_read_by, read))


def _step_of(metric: str | Mapping[str, Any] | type[Stage] | Metric[..., Any]) -> dict[str, Any]:
    """The step of a metric, as a pipeline file has it."""
    if isinstance(metric, Mapping):
        use = metric.get("use", "")
        return {**metric, "use": use if isinstance(use, str) else reference_to(use)}
    use = _stage_name(metric) if isinstance(metric, str) else reference_to(metric)
    return {"use": use, **_SETTINGS.get(use, {})}


def _step_name(stage: type[Stage]) -> str:
    """The name of the step of a stage: that of its one metric, else of the stage itself."""
    own = stage.source is not None and len(stage.metrics) == 1
    name = stage.metrics[0] if own else stage.use.rpartition(":")[2]
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", letters)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    return snake if re.fullmatch(STEP_NAME, snake) else f"metric_{snake}"


def _stage_name(metric: str) -> str:
    """The stage that makes a metric, or the name itself."""
    makers = [stage.use for stage in STAGES.values() if metric in stage.metrics]
    return makers[0] if makers and metric not in STAGES else metric


def _shown(metric: Any) -> str:
    return repr(metric.get("use") if isinstance(metric, Mapping) else metric)
