"""The built-in stages by the name that a pipeline file uses."""

from typing import Final

from claimflow.stages.base import Stage
from claimflow.stages.decompose import DecomposeClaims, SuppliedClaims
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
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

STAGES: Final[dict[str, type[Stage]]] = {stage.use: stage for stage in _BUILT_IN}

LOWER_IS_BETTER: Final[frozenset[str]] = frozenset().union(
    *(stage.lower_is_better for stage in _BUILT_IN)
)
"""The metrics of these stages that are best at 0."""
