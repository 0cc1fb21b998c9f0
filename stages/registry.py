"""Stages by the name that a pipeline file uses: built in, or of other packages.

The `use` of a step is the name of a built-in stage, the name of an entry point of the group
`claimflow.stages`, or `module:Name`. The last two name a subclass of `Stage` or a function with
the decorator `metric`. Built-in names come first. Entry points are imported only when asked for.
"""

import re
import sys
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from claimflow.stages.base import Stage, current_source, foreign_modules
from claimflow.stages.citations import FindCitations
from claimflow.stages.decompose import DecomposeClaims, SuppliedClaims
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.metric import FunctionMetric, Metric
from claimflow.stages.plugins import (
    PluginError,
    entry_point_names,
    is_reference,
    load_entry_point,
    load_object,
    reload_module,
)
from claimflow.stages.rows import Verdict
from claimflow.stages.rubric import Rubric
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.citation_metrics import CitationScores
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.lexical_metrics import (
    DeterministicCorrectness,
    DeterministicFaithfulness,
)
from claimflow.stages.scores.retrieval_metrics import NoiseSensitivity, RagChecker
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.similarity import EmbeddingSimilarity
from claimflow.stages.verify import VerifyClaims

_BUILT_IN: Final[tuple[type[Stage], ...]] = (
    DecomposeClaims,
    SuppliedClaims,
    FindCitations,
    VerifyClaims,
    EmbeddingSimilarity,
    LexicalMatch,
    FactualCorrectness,
    AnswerCorrectness,
    SemanticSimilarity,
    Faithfulness,
    ContextRecall,
    RagChecker,
    NoiseSensitivity,
    CitationScores,
    DeterministicFaithfulness,
    DeterministicCorrectness,
    Rubric,
    SummarizeScores,
)

STAGE_GROUP: Final = "claimflow.stages"
"""The group of entry points by which installed packages register stages."""

_OBJECTS: Final[WeakValueDictionary[str, type[Stage]]] = WeakValueDictionary()
"""Stages that are objects of this process, by the `use` that `reference_to` gave them."""

STAGES: Final[dict[str, type[Stage]]] = {stage.use: stage for stage in _BUILT_IN}
"""The built-in stages."""

LOWER_IS_BETTER: Final[frozenset[str]] = frozenset().union(
    *(stage.lower_is_better for stage in _BUILT_IN)
)
"""The metrics of built-in stages that are best at 0."""

CLAIM_METRICS: Final[frozenset[str]] = frozenset().union(
    *(
        stage.metrics
        for stage in _BUILT_IN
        if any(one.row is Verdict for one in stage.inputs.values())
    )
)
"""The metrics of built-in stages that are made of verdicts on claims."""


def find_stage(use: str, folder: Path | None = None) -> type[Stage] | None:
    """The stage that `use` names, None where there is no such name.

    Modules may lie in `folder`. A module whose file has changed since it was imported is imported
    again. Raises `PluginError` where the code of another package cannot be used.
    """
    if use in STAGES:
        return STAGES[use]
    stage = _OBJECTS.get(use)
    if stage is not None:
        return stage
    found = _load(use, folder)
    if found is None:
        return None
    stage = _as_stage(found, use)
    source = current_source(stage)
    if stage.source is not None and source.text != stage.source.text:
        for module in foreign_modules(stage):
            if module != "__main__":  # A script goes on as it was started.
                reload_module(module)
        stage = _as_stage(_load(use, folder), use)
        source = current_source(stage)
    # Values that it uses may be others than at its definition.
    stage.source = source
    return stage


def stage_names() -> list[str]:
    """The names of all stages, those of entry points included; imports nothing."""
    return sorted({*STAGES, *entry_point_names(STAGE_GROUP)})


def reference_to(stage: Any) -> str:
    """The `use` that names a stage class or a metric function in a pipeline.

    An object that no module has under its name, such as one that a function made, has a name of
    its own, by which `find_stage` gives it as long as something refers to it.
    """
    kind = _as_stage(stage, "")
    if STAGES.get(kind.use) is kind:
        return kind.use
    name = (
        kind.use if issubclass(kind, FunctionMetric) else f"{kind.__module__}:{kind.__qualname__}"
    )
    found: Any = sys.modules.get(kind.__module__)
    for part in name.partition(":")[2].split("."):
        found = getattr(found, part, None)
    if found is stage:
        return name
    kind.source = current_source(kind)
    own = re.sub(r"\W+", "_", kind.metrics[0] if kind.metrics else kind.__name__)
    kind.use = f"{kind.__module__}:{own}_{kind.source.digest[:8]}"
    _OBJECTS[kind.use] = kind
    return kind.use


def _load(use: str, folder: Path | None) -> Any:
    if is_reference(use):
        return load_object(use, folder)
    return load_entry_point(STAGE_GROUP, use) if use in entry_point_names(STAGE_GROUP) else None


def _as_stage(found: Any, use: str) -> type[Stage]:
    if isinstance(found, Metric):
        return found.stage
    if isinstance(found, type) and issubclass(found, Stage):
        if hasattr(found, "run") and hasattr(found, "inputs"):
            return found
        raise PluginError(f"{use} is a stage without a method run", "write run(self, samples, ...)")
    what = f"{use} is {found!r:.80}, not a stage" if use else f"{found!r:.80} is no metric"
    raise PluginError(
        what, "write a subclass of claimflow.Stage, or decorate it: @claimflow.metric"
    )
