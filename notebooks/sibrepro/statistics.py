"""Scores with intervals: accuracies over tasks and seeds, and paired differences on the same tasks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sibrepro.facts import Record


@dataclasses.dataclass(frozen=True)
class Score:
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


def right(records: Sequence[Record], name: str) -> np.ndarray:
    """Right answers [S, N] of several seeds."""
    return np.stack([record.arrays[name] for record in records])


def metric(record: Record, name: str) -> Score:
    """A metric that a record has with its "..._ci95"."""
    return Score(record.metrics[name], record.metrics[f"{name}_ci95"])
