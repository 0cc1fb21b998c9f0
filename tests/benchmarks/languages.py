"""What the embedded models make of sentences in languages that they were not taught.

Run as `python -m tests.benchmarks.languages` (a CPU minute). No pairs of premise and claim in other
languages than English that people labelled are at hand, so this measures the least that a model
must do. Of the texts of `tests/data/sentence_split` each sentence is put to the models with its own
text, which entails it, and with another text of the same language, which hardly ever does; a
sentence with a number also with 7 added to its last one, which its own text does not entail. None
of this says anything of paraphrases: a model that only compares words passes.

Entailed is the share of sentences with a probability of 0.5 or more; AUC the probability that a
sentence is closer to its own text than another one to that text.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from claimflow.flows.models.entailment.model import EmbeddedEntailment
from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.stages.tools import Pair
from tests.benchmarks.sentence_split import read

_SHORTEST = 20
"""Characters of a sentence that is put to the models; in scripts without spaces half of that."""

Scores = Callable[[Sequence[Pair]], list[float]]


def main() -> None:
    """Print a row for each language."""
    entailment, encoder = EmbeddedEntailment(), SentenceEncoder()

    def probabilities(pairs: Sequence[Pair]) -> list[float]:
        judged = entailment.judge(pairs)
        return [judged[pair].entailed for pair in pairs]

    def cosines(pairs: Sequence[Pair]) -> list[float]:
        vectors = encoder.vectors([text for pair in pairs for text in pair])
        of = {text: np.frombuffer(vector, np.float32) for text, vector in vectors.items()}
        return [float(of[premise] @ of[claim]) for premise, claim in pairs]

    print(
        "| language | sentences | entailed by their own text | by another | AUC | cosine, AUC "
        "| with another number | entailed by their own text |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for language, (own, other) in pairs_by_language().items():
        changed = [pair for one in own if (pair := with_another_number(one))]
        wrong = sum(value >= 0.5 for value in probabilities(changed))
        entailed = [probabilities(pairs) for pairs in (own, other)]
        shares = [np.mean(np.array(found) >= 0.5) for found in entailed]
        areas = [auc(*entailed), auc(cosines(own), cosines(other))]
        cells = [f"{value:.2f}" for value in (*shares, *areas)]
        print(f"| {language} | {len(own)} | {' | '.join(cells)} | {len(changed)} | {wrong} |")


def pairs_by_language() -> dict[str, tuple[list[Pair], list[Pair]]]:
    """By language: sentences with their own text, and with the next text that lacks them."""
    texts: dict[str, list[tuple[str, list[str]]]] = {}
    for case in (*read("languages"), *read("abbreviations")):
        if len(case["sentences"]) > 1:
            texts.setdefault(case["language"], []).append((case["text"], case["sentences"]))
    found = {}
    for language, cases in sorted(texts.items()):
        shortest = _SHORTEST // 2 if language in ("ja", "zh") else _SHORTEST
        own, other = [], []
        for number, (text, sentences) in enumerate(cases):
            following = [cases[(number + step) % len(cases)][0] for step in range(1, len(cases))]
            for sentence in sentences:
                elsewhere = [one for one in following if sentence not in one]
                if len(sentence) >= shortest and elsewhere:
                    own.append(Pair(text, sentence))
                    other.append(Pair(elsewhere[0], sentence))
        found[language] = (own, other)
    return found


def with_another_number(pair: Pair) -> Pair | None:
    """A pair whose claim has another last number, which the premise lacks; None without one."""
    numbers = list(re.finditer(r"[0-9]+", pair.claim))
    if not numbers:
        return None
    start, end = numbers[-1].span()
    number = str(int(numbers[-1][0]) + 7)
    if number in pair.premise:
        return None
    return Pair(pair.premise, f"{pair.claim[:start]}{number}{pair.claim[end:]}")


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The share of pairs in which the first is higher; equal ones count half."""
    first, second = np.array(higher)[:, None], np.array(lower)[None, :]
    return float(np.mean((first > second) + 0.5 * (first == second)))


if __name__ == "__main__":
    main()
