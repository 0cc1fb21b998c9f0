"""What is measured of a claim and its evidence, as numbers that a logistic model weighs."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from flows.engine.entailment.alignment import Alignment
from flows.engine.entailment.premise import Premise
from flows.engine.entailment.tokens import Kind, is_content
from flows.engine.entailment.words import EXCLUSIVE
from stages.text.lcs import lcs_length

FEATURES_VERSION: Final = 1
"""Raised when the same texts start to give other numbers."""

_KINDS: Final[tuple[Kind, ...]] = ("number", "name", "calendar")


def measure(alignment: Alignment, premise: Premise, cosines: Sequence[float]) -> dict[str, float]:
    """Features by name.

    `cosines` holds, for each sentence of the claim, its cosine with the nearest piece of
    its evidence.
    """
    nowhere = {t.key for t in alignment.missing if t.key not in premise.holding}
    covered = alignment.covered(alignment.missing)
    cosine = sum(cosines) / len(cosines)
    return {
        **_coverage(alignment, covered, nowhere),
        **_order(alignment, covered),
        **_kinds(alignment, nowhere),
        **_polarity(alignment, covered),
        **_sizes(alignment, premise, covered),
        "cosine": cosine,
        "cosine_least": min(cosines),
        "cosine_squared": cosine * cosine,
        "cosine_x_covered": cosine * covered,
    }


def _coverage(alignment: Alignment, covered: float, nowhere: set[str]) -> dict[str, float]:
    elsewhere = alignment.covered(t for t in alignment.missing if t.key in nowhere)
    relevant = [token for token in alignment.evidence if is_content(token)]
    said = sum(token.kind != "name" for token in alignment.content)
    unsaid = sum(token.kind != "name" for token in alignment.missing)
    return {
        "covered_exactly": alignment.covered(alignment.absent),
        "covered": covered,
        "covered_squared": covered * covered,
        "covered_beside_names": _share(said - unsaid, said, covered),
        "covered_in_premise": elsewhere,
        "covered_only_elsewhere": elsewhere - covered,
        "uncovered_beside_names": float(said > 0 and said == unsaid),
        "complete": float(not alignment.missing),
        "missing": math.log1p(len(alignment.missing)),
        "missing_in_premise": math.log1p(len(nowhere)),
        "evidence_used": 1 - len(alignment.unused) / max(1, len(relevant)),
    }


def _order(alignment: Alignment, covered: float) -> dict[str, float]:
    claim = [token.key for token in alignment.tokens]
    evidence = [token.key for token in alignment.evidence]
    said = [token.key for token in alignment.content]
    told = [token.key for token in alignment.evidence if is_content(token)]
    neighbours = set(pairwise(told)) | set(zip(told, told[2:], strict=False))
    wanted = list(pairwise(said))
    kept = sum(pair in neighbours for pair in wanted)
    turned = sum(pair not in neighbours and pair[::-1] in neighbours for pair in wanted)
    bigrams = set(pairwise(evidence))
    return {
        "tokens_kept": sum(key in alignment.held for key in claim) / len(claim),
        "bigrams_kept": _share(sum(p in bigrams for p in pairwise(claim)), len(claim) - 1, covered),
        "neighbours_kept": _share(kept, len(wanted), covered),
        "neighbours_turned": _share(turned, len(wanted), 0.0),
        "subsequence": lcs_length(claim, evidence) / len(claim),
    }


def _kinds(alignment: Alignment, nowhere: set[str]) -> dict[str, float]:
    features = {}
    for kind in _KINDS:
        named = sum(token.kind == kind for token in alignment.content)
        missing = [token for token in alignment.missing if token.kind == kind]
        rivals = any(token.kind == kind for token in alignment.unused)
        features[f"{kind}s"] = min(named, 5) / 5
        features[f"{kind}_missing"] = float(bool(missing))
        features[f"{kind}_missing_in_premise"] = float(any(t.key in nowhere for t in missing))
        features[f"{kind}_replaced"] = float(bool(missing) and rivals)
    return features


def _polarity(alignment: Alignment, covered: float) -> dict[str, float]:
    claim, evidence = alignment.negations
    differ = float((claim - evidence) % 2)
    strong = [token for token in alignment.tokens if token.form in EXCLUSIVE]
    return {
        "negated": float(claim % 2),
        "evidence_negated": float(min(evidence, 2)),
        "negation_differs": differ,
        "negation_differs_x_covered": differ * covered,
        "negation_differs_x_complete": differ * float(not alignment.missing),
        "negation_only_in_claim": float(claim % 2 and not evidence),
        "negation_only_in_evidence": float(not claim % 2 and evidence > 0),
        "opposite": float(alignment.opposed),
        "opposite_x_covered": float(alignment.opposed) * covered,
        "exclusive": float(bool(strong)),
        "exclusive_missing": float(any(t.key not in alignment.held for t in strong)),
    }


def _sizes(alignment: Alignment, premise: Premise, covered: float) -> dict[str, float]:
    claim, whole = math.log1p(len(alignment.tokens)), math.log1p(premise.size)
    return {
        "claim_size": claim,
        "evidence_size": math.log1p(len(alignment.evidence)),
        "premise_size": whole,
        "premise_pieces": math.log1p(len(premise.pieces)),
        "premise_is_one_piece": float(len(premise.pieces) == 1),
        "claim_size_x_covered": claim * covered,
        "premise_size_x_covered": whole * covered,
    }


def _share(count: int, total: int, otherwise: float) -> float:
    return count / total if total > 0 else otherwise
