"""How fast lexical matching is, as a whole and by part.

Run as `python tests/benchmarks/lexical.py`. Samples are made of English web sentences in
a fixed order: a response of about 120 words against three contexts of about 100 words
each. Figures are samples and, for the stage, rows of its table per CPU second of one
thread, best of three rounds.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stages.match import LexicalMatch
from stages.rows import Sample
from stages.tables import build
from stages.text.bleu import character_bleu_with
from stages.text.rouge import rouge_l_with
from stages.text.sentences import split_sentences
from stages.text.tokens import tokenize

SENTENCES = Path(__file__).parents[1] / "data" / "sentence_split" / "ud_ewt.test.jsonl"
SAMPLES = 300


def main() -> None:
    """Print one line per part of the work, then the stage in its several settings."""
    made = samples()
    texts = [
        (row["response"], "\n".join(row["retrieved_contexts"]))
        for row in made.iter_rows(named=True)
    ]
    print(f"{'what':34} {'samples/CPU s':>14} {'rows/CPU s':>11}")
    for name, part in PARTS.items():
        seconds = fastest(lambda part=part: [part(*pair) for pair in texts])
        print(f"{name:34} {SAMPLES / seconds:14,.0f}")
    settings: list[dict[str, Any]] = [
        {},
        {"tokens": "content"},
        {"tokens": "unicode"},
        {"bleu_unit": "word"},
        {"unit": "text"},
    ]
    for chosen in settings:
        stage = LexicalMatch(against="retrieved_contexts", **chosen)
        words = ", ".join(f"{k} {v}" for k, v in chosen.items()) or "defaults"
        seconds = fastest(lambda stage=stage: stage.run(samples=made))
        rows = stage.run(samples=made).height
        name = f"lexical_match: {words}"
        print(f"{name:34} {SAMPLES / seconds:14,.0f} {rows / seconds:11,.0f}")


def rouge_part(response: str, source: str) -> None:
    """ROUGE-L of every sentence."""
    measure = rouge_l_with(source)
    for start, end in split_sentences(response):
        measure(response[start:end])


def bleu_part(response: str, source: str) -> None:
    """BLEU on characters of every sentence."""
    measure = character_bleu_with(source)
    for start, end in split_sentences(response):
        measure(response[start:end])


PARTS: dict[str, Callable[[str, str], object]] = {
    "sentences of the response": lambda response, _: split_sentences(response),
    "treebank tokens of the contexts": lambda _, source: tokenize(source),
    "content tokens of the contexts": lambda _, source: tokenize(source, tokens="content"),
    "unicode tokens of the contexts": lambda _, source: tokenize(source, tokens="unicode"),
    "sentences and ROUGE-L": rouge_part,
    "sentences and character BLEU": bleu_part,
}


def samples() -> pl.DataFrame:
    """Samples of about 120 words against three times 100."""
    pick = passages(random.Random(0))
    return build(
        Sample,
        [
            {
                "sample_id": str(number),
                "response": next(pick(120)),
                "retrieved_contexts": [next(pick(100)) for _ in range(3)],
            }
            for number in range(SAMPLES)
        ],
    )


def passages(chance: random.Random) -> Callable[[int], Iterator[str]]:
    """A maker of passages of at least so many words."""
    with SENTENCES.open(encoding="utf-8") as lines:
        sentences = [sentence for line in lines for sentence in json.loads(line)["sentences"]]

    def passage(words: int) -> Iterator[str]:
        while True:
            chosen: list[str] = []
            while sum(len(sentence.split()) for sentence in chosen) < words:
                chosen.append(chance.choice(sentences))
            yield " ".join(chosen)

    return passage


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three rounds of `work`."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
