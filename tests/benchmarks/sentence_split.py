"""How well and how fast sentence splitters find the sentences of labelled texts.

Run as `python tests/benchmarks/sentence_split.py`. Compares claimflow's own rule with the
libraries sentencex, pysbd, syntok and blingfire; one that is not installed is skipped.

Boundary F1 counts the ends of all sentences but the last of a text, by the number of
non-blank characters before them, so that white space and offsets play no part. Exact is
the share of texts with every sentence right. All times are CPU seconds of one thread;
import is a fresh process up to its first sentence, less that of an empty process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

Splitter = Callable[[str], list[str]]

DATA = Path(__file__).parents[1] / "data" / "sentence_split"
FILES = ("ud_ewt.dev", "ud_ewt.test", "golden_rules")

SETUPS = {
    "stages": """
from stages.text.sentences import split_sentences
split = lambda text: [text[start:end] for start, end in split_sentences(text)]
""",
    "sentencex": """
import sentencex
split = lambda text: list(sentencex.segment("en", text))
""",
    "pysbd": """
import pysbd
split = pysbd.Segmenter(language="en", clean=False).segment
""",
    "syntok": """
from syntok import segmenter
split = lambda text: [
    "".join(token.spacing + token.value for token in sentence)
    for paragraph in segmenter.analyze(text)
    for sentence in paragraph
]
""",
    "blingfire": """
import blingfire
split = lambda text: blingfire.text_to_sentences(text).split("\\n")
""",
}
CLOCK = "import time; print(time.process_time())"


def main() -> None:
    """Print one line per splitter and file."""
    texts = {file: list(read(file)) for file in FILES}
    print(f"{'splitter':10} {'file':13} {'F1':>6} {'exact':>6} {'sentences/s':>12} {'import s':>9}")
    for library, setup in SETUPS.items():
        if find_spec(library) is None:
            print(f"{library:10} skipped: not installed")
            continue
        names: dict[str, Splitter] = {}
        exec(setup, names)
        seconds = import_seconds(setup)
        for file, cases in texts.items():
            f1, exact, speed = measure(names["split"], cases)
            print(f"{library:10} {file:13} {f1:6.3f} {exact:6.3f} {speed:12,.0f} {seconds:9.2f}")


def read(file: str) -> Iterator[tuple[str, list[str]]]:
    """The texts of a file, each with its labelled sentences."""
    with (DATA / f"{file}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            yield case["text"], case["sentences"]


def measure(split: Splitter, cases: list[tuple[str, list[str]]]) -> tuple[float, float, float]:
    """Boundary F1 over all texts, share of exact texts, labelled sentences per CPU second."""
    started, rounds = time.process_time(), 0
    while time.process_time() - started < 1.0:
        found = [split(text) for text, _ in cases]
        rounds += 1
    seconds = (time.process_time() - started) / rounds
    pairs = [(boundaries(f), boundaries(gold)) for f, (_, gold) in zip(found, cases, strict=True)]
    hits = sum(len(f & gold) for f, gold in pairs)
    f1 = 2 * hits / sum(len(f) + len(gold) for f, gold in pairs)
    exact = sum(f == gold for f, gold in pairs) / len(pairs)
    return f1, exact, sum(len(gold) for _, gold in cases) / seconds


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

    return cpu(f"{setup}\nsplit('One. Two.')\n{CLOCK}") - cpu(CLOCK)


if __name__ == "__main__":
    main()
