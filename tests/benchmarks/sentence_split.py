"""Accuracy and speed of sentence splitters on labelled texts.

Run as `python -m tests.benchmarks.sentence_split`. Compares claimflow's own rule with the
libraries sentencex, pysbd, syntok and blingfire; one that is not installed is skipped. The
last two and claimflow's do not take a language.

Boundary F1 counts the ends of all sentences but the last of a text, by the number of
non-blank characters before them, so that white space does not matter; a dash
where there are none. Exact is the share of texts with every sentence right. Our rule was
developed on all these texts, and pysbd's on those of its golden rules.

All times are CPU seconds of one thread, MB/s counts bytes of UTF-8; import is the
time of a fresh process up to its first sentence, less that of an empty process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Splitter = Callable[[str, str], list[str]]
Cases = list[tuple[str, list[str]]]

DATA = Path(__file__).parents[1] / "data" / "sentence_split"
ENGLISH = ("ud_ewt.dev", "ud_ewt.test", "golden_rules")

SETUPS = {
    "claimflow": """
from claimflow.stages.text.sentences import split_sentences
split = lambda text, language: [text[start:end] for start, end in split_sentences(text)]
""",
    "sentencex": """
import sentencex
split = lambda text, language: list(sentencex.segment(language, text))
""",
    "pysbd": """
import functools, pysbd
segmenter = functools.cache(lambda language: pysbd.Segmenter(language=language, clean=False))
split = lambda text, language: segmenter(language).segment(text)
""",
    "syntok": """
from syntok import segmenter
split = lambda text, language: [
    "".join(token.spacing + token.value for token in sentence)
    for paragraph in segmenter.analyze(text)
    for sentence in paragraph
]
""",
    "blingfire": """
import blingfire
split = lambda text, language: blingfire.text_to_sentences(text).split("\\n")
""",
}
CLOCK = "import time; print(time.process_time())"


def main() -> None:
    """Print one line per splitter and set of texts."""
    sets = list(texts())
    print(f"{'splitter':10} {'texts':16} {'F1':>6} {'exact':>12} {'sentences/s':>12} {'MB/s':>6}")
    for library, setup in SETUPS.items():
        if find_spec(library) is None:
            print(f"{library:10} skipped: not installed")
            continue
        names: dict[str, Splitter] = {}
        exec(setup, names)
        for name, language, cases in sets:
            f1, exact, seconds = measure(names["split"], language, cases)
            sentences = sum(len(gold) for _, gold in cases) / seconds
            megabytes = sum(len(text.encode()) for text, _ in cases) / seconds / 1e6
            right = f"{exact}/{len(cases)}"
            print(f"{library:10} {name:16} {f1} {right:>12} {sentences:12,.0f} {megabytes:6.2f}")
        print(f"{library:10} imports in {import_seconds(setup):.2f} s")


def texts() -> Iterator[tuple[str, str, Cases]]:
    """Each set of texts: its name, its language, and the texts with their sentences."""
    for file in ENGLISH:
        yield file, "en", [(case["text"], case["sentences"]) for case in read(file)]
    for file in ("languages", "abbreviations"):
        languages: dict[str, Cases] = {}
        for case in read(file):
            languages.setdefault(case["language"], []).append((case["text"], case["sentences"]))
        yield from ((f"{file} {name}", name, cases) for name, cases in languages.items())


def read(file: str) -> Iterator[dict[str, Any]]:
    """The labelled texts of a file."""
    with (DATA / f"{file}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def measure(split: Splitter, language: str, cases: Cases) -> tuple[str, int, float]:
    """Boundary F1 over all texts, number of exact texts, CPU seconds for all."""
    started, rounds = time.process_time(), 0
    while time.process_time() - started < 0.3:
        found = [split(text, language) for text, _ in cases]
        rounds += 1
    seconds = (time.process_time() - started) / rounds
    pairs = [(boundaries(f), boundaries(gold)) for f, (_, gold) in zip(found, cases, strict=True)]
    hits = sum(len(f & gold) for f, gold in pairs)
    ends = sum(len(f) + len(gold) for f, gold in pairs)
    f1 = f"{2 * hits / ends:6.3f}" if ends else f"{'-':>6}"
    return f1, sum(f == gold for f, gold in pairs), seconds


def boundaries(sentences: list[str]) -> set[int]:
    """Non-blank characters before the end of each sentence but the last."""
    ends, seen = [0], 0
    for sentence in sentences:
        seen += sum(not character.isspace() for character in sentence)
        ends.append(seen)
    return set(ends) - {0, seen}


def import_seconds(setup: str) -> float:
    """CPU seconds from a fresh process to its first sentence."""

    def cpu(code: str) -> float:
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(3)]
        return min(float(run.stdout) for run in runs)

    return cpu(f"{setup}\nsplit('One. Two.', 'en')\n{CLOCK}") - cpu(CLOCK)


if __name__ == "__main__":
    main()
