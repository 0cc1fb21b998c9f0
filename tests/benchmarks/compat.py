"""Speed of lexical matches in continuous-eval's way, compared with the packages that it uses.

Run as `python -m tests.benchmarks.compat`. Samples are made of English web sentences in a
fixed order: a response of about 120 words against three contexts of as many. Figures are
samples per CPU second of one thread, ours the best of three rounds.

continuous-eval itself needs data from the network when it is imported. Where the packages
`rouge` and `nltk` are installed, its two costliest measures are run as it runs them, on our
sentences. It also tokenises and splits sentences, so the real ratio is higher than the one
printed. The values are compared as well.
"""

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import polars as pl

from claimflow.stages.compat.continuous_eval import compat_matches
from claimflow.stages.rows import Sample
from claimflow.stages.tables import build
from tests.benchmarks.measuring import cpu_seconds

SENTENCES = Path(__file__).parents[1] / "data" / "sentence_split" / "ud_ewt.test.jsonl"
SAMPLES = 300
OF_PEER = 20
WORDS = 120


def main() -> None:
    """Print our rates for both units and growing tables, then the peer's, and the ratio."""
    table = samples(SAMPLES)
    ours = max(rate(table) for _ in range(3))
    whole = max(rate(table, against="reference", unit="text") for _ in range(3))
    print(f"sentences against the contexts joined {ours:10,.0f} samples/CPU s")
    print(f"whole responses against a reference   {whole:10,.0f} samples/CPU s")
    for count in (1_000, 10_000):
        print(
            f"sentences of {count:6,} samples          {rate(samples(count)):10,.0f} samples/CPU s"
        )
    peer = peer_rate(table[:OF_PEER])
    if peer is None:
        print("no peer here: pip install rouge==1.0.1 nltk==3.9.1")
        return
    print(f"rouge and NLTK's BLEU, sentences      {peer:10,.1f} samples/CPU s")
    print(f"ratio, at least                       {ours / peer:10,.1f}")


def rate(
    table: pl.DataFrame,
    *,
    against: Literal["reference", "retrieved_contexts"] = "retrieved_contexts",
    unit: Literal["sentence", "text"] = "sentence",
) -> float:
    """Our samples per CPU second."""
    return table.height / cpu_seconds(lambda: compat_matches(table, against=against, unit=unit))


def peer_rate(table: pl.DataFrame) -> float | None:
    """Samples per CPU second of `rouge` and NLTK's BLEU; None where they are not installed."""
    try:
        from nltk.translate.bleu_score import sentence_bleu
        from rouge import Rouge
    except ImportError:
        return None
    matches = compat_matches(table, against="retrieved_contexts", unit="sentence")
    sources = {
        s: "\n".join(texts) for s, texts in table[["sample_id", "retrieved_contexts"]].rows()
    }
    pairs = [(sentence, sources[s]) for sentence, s in matches[["sentence", "sample_id"]].rows()]
    values: list[tuple[float, float]] = []

    def work() -> None:
        for sentence, source in pairs:
            spoken = any(map(str.isalnum, sentence))
            rouge = Rouge().get_scores(sentence, source)[0]["rouge-l"]["p"] if spoken else 0.0
            values.append((rouge, sentence_bleu([source], sentence)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = cpu_seconds(work)
    found = zip(matches[["rouge_l_precision", "bleu"]].rows(), values, strict=True)
    worst = max(abs(a - b) for mine, theirs in found for a, b in zip(mine, theirs, strict=True))
    print(f"largest difference of {len(pairs)} sentences {worst:15.0e}")
    return table.height / seconds


def samples(count: int) -> pl.DataFrame:
    """Samples of about 120 words against three times as many, and a reference."""
    with SENTENCES.open(encoding="utf-8") as lines:
        sentences = [sentence for line in lines for sentence in json.loads(line)["sentences"]]
    passage = passages(sentences, random.Random(0))
    return build(
        Sample,
        [
            {
                "sample_id": str(number),
                "response": next(passage),
                "reference": next(passage),
                "retrieved_contexts": [next(passage) for _ in range(3)],
            }
            for number in range(count)
        ],
    )


def passages(sentences: list[str], chance: random.Random) -> Iterator[str]:
    """Passages of at least 120 words, without end."""
    while True:
        chosen: list[str] = []
        while sum(len(sentence.split()) for sentence in chosen) < WORDS:
            chosen.append(chance.choice(sentences))
        yield " ".join(chosen)


if __name__ == "__main__":
    main()
