"""How close the 8-bit encoder is to the 32-bit one, and how fast both are.

Run as `python tests/benchmarks/embedding.py [--full FOLDER]`, where FOLDER is what
`export.py WHEEL FOLDER --full` wrote (flows/engine/models/all-MiniLM-L6-v2/export.py).
Without it only the 8-bit encoder is measured. Texts are those of configs/demo.jsonl,
whole (questions, responses, references, contexts) and by sentence. Deviations are over
the cosines of all pairs of texts; speeds are embeddings per CPU second, best of three
rounds.
"""

import argparse
import json
import random
import resource
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flows.engine.embedder import OnnxEmbedder
from stages.text.sentences import split_sentences

DEMO = Path(__file__).parents[2] / "configs" / "demo.jsonl"
SENTENCES = 400


def main() -> None:
    """Print deviations, dependence on neighbours, speeds and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", type=Path, help="folder of the 32-bit encoder")
    full = parser.parse_args().full
    whole, sentences = demo_texts()
    print(f"{len(whole)} demo texts, {len(sentences)} sentences of them\n")
    embedder = OnnxEmbedder(threads=1)
    if full:
        deviations(embedder, OnnxEmbedder(full, threads=1), whole, sentences)
    neighbours(embedder, sentences)
    speeds({"8-bit": None} | ({"32-bit": full} if full else {}), sentences, whole)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, all encoders loaded: {peak:,.0f} MiB")


def demo_texts() -> tuple[list[str], list[str]]:
    """Distinct texts of the demo, and distinct sentences of them."""
    rows = [json.loads(line) for line in DEMO.read_text("utf-8").splitlines()]
    texts = dict.fromkeys(
        text
        for row in rows
        for text in (
            row.get("user_input"),
            row.get("response"),
            row.get("reference"),
            *(row.get("retrieved_contexts") or ()),
        )
        if text and text.strip()
    )
    sentences = dict.fromkeys(
        text[start:end] for text in texts for start, end in split_sentences(text)
    )
    return list(texts), list(sentences)


def deviations(
    small: OnnxEmbedder, full: OnnxEmbedder, whole: list[str], sentences: list[str]
) -> None:
    """Differences of cosines, 8-bit from 32-bit."""
    print(f"{'cosines, 8-bit from 32-bit':30} {'pairs':>9} {'max':>8} {'mean':>8}")
    for name, texts in (("demo texts", whole), ("sentences", sentences)):
        a, b = vectors(small, texts), vectors(full, texts)
        pairs = np.triu_indices(len(texts), 1)
        apart = np.abs(a @ a.T - b @ b.T)[pairs]
        print(f"{name:30} {len(apart):9,} {apart.max():8.4f} {apart.mean():8.4f}")
    print()


def neighbours(embedder: OnnxEmbedder, sentences: list[str]) -> None:
    """How far a vector moves with the texts it is embedded with."""
    some = sentences[:100]
    alone = np.concatenate([vectors(embedder, [text]) for text in some])
    apart = np.abs(alone - vectors(embedder, sentences)[: len(some)]).max()
    print(f"a number of a vector, alone or among {len(sentences)}: at most {apart:.1e} apart\n")


def speeds(folders: dict[str, Path | None], sentences: list[str], whole: list[str]) -> None:
    """Embeddings per CPU second, with the seconds it takes to load."""
    chosen = random.Random(0).sample(sentences, min(SENTENCES, len(sentences)))
    print(f"{'':8} {'threads':>7} {'load s':>7} {'sentences/CPU s':>16} {'demo texts/CPU s':>17}")
    for name, folder in folders.items():
        for threads in (1, 2):
            started = time.process_time()
            embedder = OnnxEmbedder(folder, threads)
            embedder.embed(["load"])
            load = time.process_time() - started
            short, long = (per_second(embedder, texts) for texts in (chosen, whole[:60]))
            print(f"{name:8} {threads:7} {load:7.2f} {short:16,.0f} {long:17,.0f}")
    print()


def per_second(embedder: OnnxEmbedder, texts: list[str]) -> float:
    """Texts per CPU second, best of three rounds."""
    marks = [time.process_time()]
    for _ in range(3):
        embedder.embed(texts)
        marks.append(time.process_time())
    return len(texts) / min(end - start for start, end in pairwise(marks))


def vectors(embedder: OnnxEmbedder, texts: list[str]) -> NDArray[np.float32]:
    """Embeddings of distinct texts, in their order."""
    return embedder.embed(texts)["embedding"].to_numpy()


if __name__ == "__main__":
    main()
