"""How fast lexical matching is: whole, by measure, as rows grow, and beside other packages.

Run as `python tests/benchmarks/lexical.py`, with another number of rows as argument to see
growth up to it. A row is a response of about 120 words against three contexts of about 120
words each, made of English web sentences in a fixed order. Figures are rows per CPU second
of one thread, the best of three rounds.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from lexical_peers import Work, peers

from stages.match import LexicalMatch
from stages.rows import Sample
from stages.score_lexical import DeterministicFaithfulness
from stages.tables import build
from stages.text.bleu import character_bleus, word_bleus
from stages.text.chrf import chrfs
from stages.text.comparison import Comparison
from stages.text.overlap import token_overlaps
from stages.text.rouge import rouge_ls
from stages.text.sentences import split_sentences
from stages.text.word_letters import WordLetters

SENTENCES = Path(__file__).parents[1] / "data" / "sentence_split" / "ud_ewt.test.jsonl"
ROWS = 1_000
PEER_ROWS = 30
SETTINGS: list[dict[str, Any]] = [
    {"tokens": "content"},
    {"tokens": "unicode"},
    {"bleu_unit": "word"},
    {"unit": "text"},
]


def main() -> None:
    """Print one line per figure."""
    made = samples(ROWS)
    print(f"{'rows per CPU second':56}")
    ours = show("deterministic faithfulness: match and score", made, faithfulness)
    for chosen in SETTINGS:
        stage = LexicalMatch(against="retrieved_contexts", **chosen)
        words = ", ".join(f"{setting} {value}" for setting, value in chosen.items())
        show(f"lexical_match: {words}", made, lambda some, stage=stage: stage.run(samples=some))
    for name, part in parts(made).items():
        show(name, made, lambda _, part=part: part())
    for rows in (1_000, 10_000, *map(int, sys.argv[1:])):
        show(f"deterministic faithfulness, {rows:,} rows", samples(rows), faithfulness)
    beside(made.head(PEER_ROWS), ours)


def faithfulness(made: pl.DataFrame) -> pl.DataFrame:
    """Both steps with their default settings."""
    matches = LexicalMatch(against="retrieved_contexts").run(samples=made)
    return DeterministicFaithfulness().run(samples=made, context_matches=matches)


def parts(made: pl.DataFrame) -> dict[str, Callable[[], object]]:
    """The parts of the work, each measured alone."""
    rows = made.select("response", "retrieved_contexts").rows()
    texts = [(response, "\n".join(contexts)) for response, contexts in rows]
    sentences = [[text[start:end] for start, end in split_sentences(text)] for text, _ in texts]
    letters = WordLetters("treebank")
    characters, words, tokens, whole = [], [], [], []
    for found, (response, source) in zip(sentences, texts, strict=True):
        characters.append(Comparison(found, source))
        words.append(Comparison([letters.words(s) for s in found], letters.words(source)))
        tokens.append(Comparison(letters.sentences(found), letters.text(source)))
        whole.append(Comparison([response], source))
    return {
        "sentences of response and contexts": lambda: [
            split_sentences(text) for pair in texts for text in pair
        ],
        "words for ROUGE-L": lambda: [letters.words(text) for pair in texts for text in pair],
        "sentences and treebank tokens": lambda: [
            letters.text(text) for pair in texts for text in pair
        ],
        "ROUGE-L of the sentences": lambda: rouge_ls(words),
        "token overlap of the sentences": lambda: token_overlaps(tokens),
        "character BLEU of the sentences": lambda: character_bleus(characters),
        "word BLEU of the sentences": lambda: word_bleus(tokens),
        "chrF of the response": lambda: chrfs(whole),
    }


def beside(made: pl.DataFrame, ours: float) -> None:
    """Print what the other packages do with the same rows in the same run."""
    rows = made.select("response", "retrieved_contexts").rows()
    for name, work in peers().items():
        if isinstance(work, str):
            print(f"{name:56} {work}")
            continue
        rate = len(rows) / fastest(lambda work=work: each(work, rows))
        print(f"{name:56} {rate:9,.0f}   deterministic faithfulness here: {ours / rate:,.1f} times")


def each(work: Work, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Do the work of a peer on every row."""
    for response, contexts in rows:
        work(response, contexts)


def show(name: str, made: pl.DataFrame, work: Callable[[pl.DataFrame], object]) -> float:
    """Print and return rows per CPU second."""
    rate = made.height / fastest(lambda: work(made))
    print(f"{name:56} {rate:9,.0f}", flush=True)
    return rate


def samples(rows: int) -> pl.DataFrame:
    """Responses of about 120 words with three contexts of as many."""
    with SENTENCES.open(encoding="utf-8") as lines:
        sentences = [sentence for line in lines for sentence in json.loads(line)["sentences"]]
    passage = passages(sentences, random.Random(0), words=120)
    made = [
        {
            "sample_id": str(number),
            "response": passage(),
            "retrieved_contexts": [passage() for _ in range(3)],
        }
        for number in range(rows)
    ]
    return build(Sample, made)


def passages(sentences: Sequence[str], chance: random.Random, *, words: int) -> Callable[[], str]:
    """A maker of passages of so many words on average."""
    over = 0

    def passage() -> str:
        nonlocal over
        chosen: list[str] = []
        while over < words:
            chosen.append(chance.choice(sentences))
            over += len(chosen[-1].split())
        over -= words
        return " ".join(chosen)

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
