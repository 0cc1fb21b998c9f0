"""Speed of lexical matching: whole, by measure, with growing rows, and beside other packages.

Run as `python -m tests.benchmarks.lexical [ROWS ...]`, with more numbers of rows to see how time
grows. A row is a response of about 120 words against three contexts of about 120
words each, in one of two shapes: English web sentences as they are, of 15 words and of all
lengths, and the words of those in sentences of seven words. Time grows with the number of
sentences, that of other packages more than ours. Figures are rows per CPU second of one process,
the best of three rounds; beside other packages all take turns, and the best of five rounds counts.
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from claimflow.stages.compat.continuous_eval import CONTINUOUS_EVAL
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.rows import Sample
from claimflow.stages.scores.lexical_metrics import DeterministicFaithfulness
from claimflow.stages.tables import build
from claimflow.stages.text.bleu import character_bleus, word_bleus
from claimflow.stages.text.chrf import chrfs
from claimflow.stages.text.comparison import Comparison, Letters
from claimflow.stages.text.overlap import rouge_ls, rouge_words, token_overlaps
from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.text.tokens import tokenize
from tests.benchmarks.lexical_peers import Work, peers
from tests.benchmarks.measuring import fastest_of_three, in_turns

SENTENCES = Path(__file__).parents[1] / "data" / "sentence_split" / "ud_ewt.test.jsonl"
ROWS = 1_000
COMPAT_ROWS = 100
PEER_ROWS = 30
SETTINGS: list[dict[str, Any]] = [
    {"tokens": "content"},
    {"tokens": "unicode"},
    {"bleu_unit": "word"},
    {"unit": "text"},
]


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", type=int, help="more numbers of rows")
    options = parser.parse_args()
    web, short = web_sentences(), short_sentences()
    made = samples(web, ROWS)
    print(f"{'rows per CPU second':56}")
    for chosen in SETTINGS:
        stage = LexicalMatch(against="retrieved_contexts", **chosen)
        settings = ", ".join(f"{setting} {value}" for setting, value in chosen.items())
        show(f"lexical_match: {settings}", made, stage.run)
    for name, part in parts(made).items():
        show(name, made, partial(alone, part))
    for rows in (1_000, 10_000, *options.rows):
        show(f"deterministic faithfulness, {rows:,} rows", samples(web, rows), faithfulness)
    beside("web sentences", made)
    beside("short sentences", samples(short, ROWS))


def faithfulness(made: pl.DataFrame) -> pl.DataFrame:
    """Both steps with their default settings."""
    matches = LexicalMatch(against="retrieved_contexts").run(samples=made)
    return DeterministicFaithfulness().run(samples=made, context_matches=matches)


def compat_faithfulness(made: pl.DataFrame) -> pl.DataFrame:
    """Both steps as continuous-eval does them; the corrected scores are made beside."""
    matching = LexicalMatch(against="retrieved_contexts", compat=CONTINUOUS_EVAL)
    scoring = DeterministicFaithfulness(compat=CONTINUOUS_EVAL)
    return scoring.run(samples=made, context_matches=matching.run(samples=made))


def parts(made: pl.DataFrame) -> dict[str, Callable[[], object]]:
    """The parts of the work, each measured alone."""
    rows = made.select("response", "retrieved_contexts").rows()
    pairs = [(response, "\n".join(contexts)) for response, contexts in rows]
    texts = [text for pair in pairs for text in pair]
    letters = Letters()
    characters, words, tokens, whole = [], [], [], []
    for response, source in pairs:
        sentences = [response[start:end] for start, end in split_sentences(response)]
        characters.append(Comparison(sentences, source))
        words.append(spelled(letters, rouge_words, sentences, source))
        tokens.append(spelled(letters, tokenize, sentences, source))
        whole.append(Comparison([response], source))
    return {
        "sentences": lambda: list(map(split_sentences, texts)),
        "sentences and treebank tokens": lambda: list(map(tokenize, texts)),
        "ROUGE-L of the sentences": lambda: rouge_ls(words),
        "token overlap of the sentences": lambda: token_overlaps(tokens),
        "character BLEU of the sentences": lambda: character_bleus(characters),
        "word BLEU of the sentences": lambda: word_bleus(tokens),
        "chrF of the response": lambda: chrfs(whole),
    }


def spelled(
    letters: Letters, words: Callable[[str], list[str]], texts: Sequence[str], source: str
) -> Comparison:
    """Texts and their source as letters that stand for words."""
    return Comparison([letters.spell(words(text)) for text in texts], letters.spell(words(source)))


def beside(shape: str, made: pl.DataFrame) -> None:
    """Print what the other packages do with the same rows, all in turns in the same run."""
    print(f"\n{shape}")
    rows = made.head(PEER_ROWS).select("response", "retrieved_contexts").rows()
    found = peers()
    contestants: dict[str, tuple[int, Callable[[], object]]] = {
        "match and score": (made.height, partial(faithfulness, made)),
        "compat": (COMPAT_ROWS, partial(compat_faithfulness, made.head(COMPAT_ROWS))),
        **{
            name: (len(rows), partial(each, work, rows))
            for name, work in found.items()
            if not isinstance(work, str)
        },
    }
    seconds = in_turns({name: work for name, (_, work) in contestants.items()})
    rates = {name: count / seconds[name] for name, (count, _) in contestants.items()}
    ours, compat = rates["match and score"], rates["compat"]
    print(f"{'deterministic faithfulness: match and score':56} {ours:9,.0f}")
    print(f"{'the same, compat':56} {compat:9,.0f}")
    for name, missing in found.items():
        if isinstance(missing, str):
            print(f"{name:56} {missing}")
            continue
        times = f"deterministic faithfulness here: {ours / rates[name]:,.1f} times"
        if name.startswith("continuous-eval"):
            times += f", compat: {compat / rates[name]:,.1f} times"
        print(f"{name:56} {rates[name]:9,.1f}   {times}", flush=True)


def alone(part: Callable[[], object], _: pl.DataFrame) -> object:
    """A part, which has its texts already."""
    return part()


def each(work: Work, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Do the work of a peer on every row."""
    for response, contexts in rows:
        work(response, contexts)


def show(name: str, made: pl.DataFrame, work: Callable[[pl.DataFrame], object]) -> float:
    """Print and return rows per CPU second."""
    rate = made.height / fastest_of_three(lambda: work(made))
    print(f"{name:56} {rate:9,.0f}", flush=True)
    return rate


def web_sentences() -> list[str]:
    """Sentences of English web pages."""
    with SENTENCES.open(encoding="utf-8") as lines:
        return [sentence for line in lines for sentence in json.loads(line)["sentences"]]


def short_sentences() -> list[str]:
    """The words of `web_sentences` that are of letters only, seven a sentence."""
    words = [word for text in web_sentences() for word in text.split() if word.isalpha()]
    sevens = (words[first : first + 7] for first in range(0, len(words), 7))
    return [f"{' '.join(seven).capitalize()}." for seven in sevens]


def samples(sentences: Sequence[str], rows: int) -> pl.DataFrame:
    """Responses of about 120 words with three contexts of as many."""
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


if __name__ == "__main__":
    main()
