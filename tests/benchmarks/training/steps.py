"""Steps of training: optimizer, learning rate, and a checkpoint from which training resumes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Schedule(NamedTuple):
    """Learning rates, one for each group of parameters, which rise and then fall.

    They rise over the share `warm_up` of all steps, and fall no lower than to the share `lowest`.
    `memory` is how much of its mean of squared gradients Adam keeps at each step.
    """

    rates: Sequence[float]
    warm_up: float
    lowest: float
    decay: float
    memory: float = 0.999


class Training:
    """A network, its optimizer and the progress, with a checkpoint in `folder`.

    `groups` are the parameters to train. With `averaged`, a running mean of them is kept: after
    each step `averaged` x the mean + (1 - `averaged`) x the weights.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        groups: Iterable[Iterable[torch.nn.Parameter]],
        schedule: Schedule,
        folder: Path,
        averaged: float | None = None,
    ) -> None:
        self.network, self._file, self._schedule = network, folder / "checkpoint.pt", schedule
        trained = [{"params": list(group)} for group in groups]
        self._trained = [parameter for group in trained for parameter in group["params"]]
        self._averaged = averaged
        kept = self._trained if averaged is not None else []
        self._means = [one.detach().clone() for one in kept]
        self._optimizer = torch.optim.AdamW(
            trained, betas=(0.9, schedule.memory), weight_decay=schedule.decay
        )
        self.step = 0

    def resume(self, device: torch.device | None = None) -> None:
        """Resume from the checkpoint, if there is one."""
        if self._file.exists():
            kept: dict[str, Any] = torch.load(self._file, map_location=device)
            self.network.load_state_dict(kept["network"])
            self._optimizer.load_state_dict(kept["optimizer"])
            self._means = kept["means"]
            torch.set_rng_state(kept["random"].cpu())
            self.step = kept["step"]

    def save(self) -> None:
        """Write a checkpoint."""
        part = self._file.with_suffix(".part")
        kept = {
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "means": self._means,
            "random": torch.get_rng_state(),
            "step": self.step,
        }
        torch.save(kept, part)
        part.replace(self._file)

    def step_on(self, losses: Iterable[torch.Tensor], total: int) -> float:
        """One step of `total` to a lower sum of `losses`, which it returns.

        They are computed one after another, each from a part of the batch that fits into memory.
        """
        schedule = self._schedule
        rising = min(1, self.step / (schedule.warm_up * total))
        share = rising * max(schedule.lowest, 1 - self.step / total)
        for group, rate in zip(self._optimizer.param_groups, schedule.rates, strict=True):
            group["lr"] = rate * share
        self._optimizer.zero_grad()
        lost = 0.0
        for loss in losses:
            loss.backward()
            lost += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        if self._averaged is not None:
            # Early on the mean would consist of the first weights.
            kept = min(self._averaged, (1 + self.step) / (10 + self.step))
            for mean, parameter in zip(self._means, self._trained, strict=True):
                mean.lerp_(parameter.detach(), 1 - kept)
        return lost

    def take_means(self) -> None:
        """Give the network the running means as its weights; needs `averaged`."""
        with torch.no_grad():
            for mean, parameter in zip(self._means, self._trained, strict=True):
                parameter.copy_(mean)
