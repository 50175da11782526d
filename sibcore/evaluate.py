"""Evaluation of a method on many episodes at once.

A method is whatever has an `answer`: a SIB, a group of SIBs that are trained together, or a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sibcore.episodes import Tasks
from sibcore.sib import unit


class Method(Protocol):
    """What can be evaluated."""

    ways: int

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the queries.

        Args:
            support: unit features `[B, m, d]`.
            support_labels: their labels, `[B, m]`.
            query: unit features `[B, n, d]`.

        Returns:
            logits `[B, n, k]`.
        """


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The accuracies of single episodes `[N]`, with their mean and its 95 % interval."""

    accuracies: Tensor

    @property
    def mean(self) -> float:
        """The mean accuracy, between 0 and 1."""
        return self.accuracies.mean().item()

    @property
    def interval(self) -> float:
        """Half the width of the mean's 95 % interval."""
        return 1.96 * self.accuracies.std(correction=0).item() / math.sqrt(len(self.accuracies))

    def right(self, queries: int) -> np.ndarray:
        """Return how many of its queries each episode answered rightly, `[N]`, in as few bytes as will do."""
        counts = (self.accuracies * queries).round().numpy()
        return counts.astype(np.uint8 if queries < 256 else np.uint16)

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.interval:.2f} %"


def evaluate(method: Method, bank: Tensor, tasks: Tasks, batch: int | None = None) -> Evaluation:
    """Return the accuracy of a method on every episode.

    Args:
        method: whatever has an `answer`.
        bank: features of all images, `[N, d]`.
        tasks: the episodes, as rows of the bank.
        batch: how many episodes are answered at a time; by default as many as the processor's caches hold.
    """
    return Evaluation(_accuracies(method, bank, tasks, batch))


def evaluate_each(group: Method, bank: Tensor, tasks: Tasks, batch: int = 32) -> list[Evaluation]:
    """Return the accuracies of each of M models whose group answers with `[M, B, n, k]` (see `sibcore.group`)."""
    return [Evaluation(accuracies) for accuracies in _accuracies(group, bank, tasks, batch)]


def _accuracies(method: Method, bank: Tensor, tasks: Tasks, batch: int | None) -> Tensor:
    """Return the share of queries answered rightly, `[N]`, or `[M, N]` of a group."""
    right = (most_likely(logits) == part.query_labels for logits, part in answers(method, bank, tasks, batch))
    return torch.cat([rows.double().mean(-1).cpu() for rows in right], -1)


@torch.no_grad()
def answers(method: Method, bank: Tensor, tasks: Tasks, batch: int | None = None) -> Iterator[tuple[Tensor, Tasks]]:
    """Yield the logits `[b, n, k]` of `batch` episodes at a time, beside these episodes. w is the mean of q_θ, θᴷ."""
    bank = unit_bank(method, bank, tasks.classes.shape[1])
    # on a CPU, what the caches of its cores hold; elsewhere, what keeps it busy
    batch = batch or (min(512, 32 * torch.get_num_threads()) if bank.device.type == "cpu" else 512)
    was_training = method.training
    method.eval()  # matters to a xi with running statistics
    try:
        for start in range(0, len(tasks), batch):
            part = tasks[start : start + batch]
            yield method.answer(rows(bank, part.support), part.support_labels, rows(bank, part.query)), part
    finally:
        method.train(was_training)


def most_likely(logits: Tensor) -> Tensor:
    """Return the class of the largest logit.

    On a CPU `argmax` is many times slower than `max` where classes do not come last in memory.
    """
    return logits.max(-1).indices


def rows(bank: Tensor, index: Tensor) -> Tensor:
    """Return rows of a bank, `[N, d]` and `[..., m]` → `[..., m, d]`.

    On a CPU `index_select` is several times faster than `bank[index]`.
    """
    return bank.index_select(0, index.flatten()).view(*index.shape, -1)


def unit_bank(method: Method, bank: Tensor, ways: int) -> Tensor:
    """Return the bank with every feature scaled to length 1, on the device of the method's parameters.

    Raises:
        ValueError: if the method was made for other numbers of ways or dimensions, or a feature is not finite.
    """
    name = type(method).__name__
    if ways != method.ways:
        raise ValueError(f"the tasks have {ways} ways, but this {name} was made for {method.ways}")
    dim = getattr(method, "dim", None)  # methods that learn nothing take features of any size
    if bank.ndim != 2 or dim not in (None, bank.shape[1]):
        raise ValueError(f"features: expected [N, {dim or 'd'}] for this {name}, got {[*bank.shape]}")
    features = unit(bank)
    bad = features.sum(1).isnan().nonzero()  # infinity over infinity is NaN, too
    if len(bad):
        raise ValueError(f"{len(bad)} of {len(bank)} features hold NaN or infinity, the first is row {int(bad[0])}")
    return features.to(next(method.parameters(), bank))
