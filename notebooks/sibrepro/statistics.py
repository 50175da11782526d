"""Scores with intervals: accuracies over tasks and seeds, and paired differences on the same tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sibrepro.facts import Record


class Score(NamedTuple):
    """An accuracy or a difference of two, in percent, with its 95 % interval."""

    mean: float
    ci95: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.ci95:.2f}"


def over_seeds(right: np.ndarray, queries: int) -> Score:
    """The score of trainings that were all tested on the same tasks; `right [S, N]` counts right answers, of `queries`.

    Two sources of chance are added: which tasks were drawn (N of them), and which seed was trained (S of them).
    """
    accuracy = 100 * right.astype(float) / queries
    variance = accuracy.mean(0).var() / accuracy.shape[1]
    if len(accuracy) > 1:
        variance += accuracy.mean(1).var(ddof=1) / len(accuracy)
    return Score(accuracy.mean(), 1.96 * math.sqrt(variance))


def paired(first: np.ndarray, second: np.ndarray, queries: int) -> Score:
    """Second minus first on the same tasks, each [S, N] or [N]: how hard a task is does not widen the interval."""
    return over_seeds(np.atleast_2d(second).astype(float) - np.atleast_2d(first).astype(float), queries)


def gain(
    before: Sequence[Record], after: Sequence[Record], answers: Callable[[Record], np.ndarray], queries: int
) -> Score:
    """How much better `after` answers the same tasks; of each only the seeds that both have."""
    first, second = ({record.params["seed"]: answers(record) for record in part} for part in (before, after))
    seeds = sorted(first.keys() & second.keys())
    return paired(*(np.stack([part[seed] for seed in seeds]) for part in (first, second)), queries)


def by(records: Sequence[Record], *names: str) -> dict[Any, list[Record]]:
    """Records by these parameters (by the value itself where one is named), in the order in which they come."""
    found: dict[Any, list[Record]] = {}
    for record in records:
        key = tuple(record.params[name] for name in names)
        found.setdefault(key if len(names) > 1 else key[0], []).append(record)
    return found


def right(records: Sequence[Record], name: str) -> np.ndarray:
    """Right answers [S, N] of several seeds."""
    return np.stack([record.arrays[name] for record in records])


def metric(record: Record, name: str) -> Score:
    """A metric that a record has with its "..._ci95"."""
    return Score(record.metrics[name], record.metrics[f"{name}_ci95"])


def bars(scores: Iterable[Score]) -> np.ndarray:
    """[2, N]: the means, and the widths of their intervals, to be drawn."""
    return np.array([*scores]).reshape(-1, 2).T
