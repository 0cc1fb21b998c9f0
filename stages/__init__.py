"""Stages: what is computed. The register maps the name in YAML to the stage."""

from typing import Final

from claimflow.stages.base import Stage
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.embed import EmbeddingSimilarity
from claimflow.stages.match import LexicalMatch
from claimflow.stages.nothing import ScoreStage
from claimflow.stages.score import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.score_answers import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.score_lexical import DeterministicCorrectness, DeterministicFaithfulness
from claimflow.stages.score_passages import NoiseSensitivity, RagChecker
from claimflow.stages.summarize import SummarizeScores
from claimflow.stages.supply import SuppliedClaims
from claimflow.stages.verify import VerifyClaims

_STAGES: Final[tuple[type[Stage], ...]] = (
    DecomposeClaims,
    SuppliedClaims,
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
    DeterministicFaithfulness,
    DeterministicCorrectness,
    SummarizeScores,
)

REGISTER: Final[dict[str, type[Stage]]] = {stage.use: stage for stage in _STAGES}

LOWER_IS_BETTER: Final[frozenset[str]] = frozenset().union(
    *(stage.lower_is_better for stage in _STAGES if issubclass(stage, ScoreStage))
)
"""Metrics whose best score is 0."""
