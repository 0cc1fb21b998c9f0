"""Which judges of a pipeline are tried on its canaries, and which canaries each is asked anew."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from claimflow.flows.engine.config.canary_schema import CanarySource
from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.reader.canaries import Canary
from claimflow.flows.engine.spans import span
from claimflow.flows.engine.tools.toolbox import Toolbox
from claimflow.stages.keys import content_key
from claimflow.stages.verify import VerifyClaims

PLACE = "canaries"
"""What leads the name of a step in the record of calls made for its canaries."""


class Trial(NamedTuple):
    """One judge, with its prompt and settings: `key`. `steps` have it; `step` asks for them all.

    `anew` is the same step under the name by which the judge is asked again. `stage` takes the
    premise of each canary for the reference of a sample.
    """

    key: str
    steps: tuple[str, ...]
    step: Step
    anew: Step
    stage: VerifyClaims


def trials(pipeline: Pipeline, toolbox: Toolbox, wanted: Iterable[str]) -> list[Trial]:
    """The judges of those of the `wanted` steps that verify claims, each once."""
    wanted = set(wanted)
    found: dict[str, Trial] = {}
    for step in pipeline.steps if pipeline.canaries else ():
        if step.name not in wanted or not isinstance(step.stage, VerifyClaims):
            continue
        stage = step.stage.model_copy(update={"against": "reference", "premises": "joined"})
        how = (stage.use, stage.version, stage.model_dump(mode="json"), toolbox.identities(step))
        key = content_key("canary judge", *how)
        if key in found:
            found[key] = found[key]._replace(steps=(*found[key].steps, step.name))
            continue
        asked, anew = _named(step, ""), _named(step, ".anew")
        found[key] = Trial(key, (step.name,), asked, anew, stage)
    return list(found.values())


def due(
    canaries: Sequence[Canary],
    source: CanarySource,
    trial: Trial,
    asked_at: Mapping[str, datetime],
    now: datetime,
) -> list[Canary]:
    """Those that a judge is asked anew, which it was asked at `asked_at`, the oldest first.

    The embedded model always says the same and is never asked anew.
    """
    if not trial.step.judges or (source.fresh is None and source.every is None):
        return []
    old = [one for one in canaries if one.key in asked_at]
    if source.every is not None:
        old = [one for one in old if now - asked_at[one.key] >= span(source.every)]
    return sorted(old, key=lambda one: asked_at[one.key])[: source.fresh]


def _named(step: Step, ending: str) -> Step:
    inputs: dict[str, Any] = dict(step.inputs)
    # No step of a file can have such a name.
    return Step(f"{PLACE}.{step.name}{ending}", step.stage, inputs, step.judges)
