"""Stages: what is computed. The register maps the name in YAML to the stage."""

from typing import Final

from stages.base import Stage
from stages.decompose import DecomposeClaims
from stages.embed import EmbeddingSimilarity
from stages.match import LexicalMatch
from stages.nothing import ScoreStage
from stages.score import ContextRecall, FactualCorrectness, Faithfulness
from stages.score_answers import AnswerCorrectness, SemanticSimilarity
from stages.score_lexical import DeterministicCorrectness, DeterministicFaithfulness
from stages.score_passages import NoiseSensitivity, RagChecker
from stages.summarize import SummarizeScores
from stages.supply import SuppliedClaims
from stages.verify import VerifyClaims

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
