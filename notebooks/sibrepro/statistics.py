"""Accuracies with 95 % intervals, over tasks and seeds, and paired differences of two methods on the same tasks.

Shapes: S seeds, N tasks. Arrays count the right answers of each task, `[S, N]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sibrepro.facts import Record


class Score(NamedTuple):
    """An accuracy, or a difference of two accuracies, in percent.

    Attributes:
        mean: the mean over tasks and seeds.
        ci95: half the width of its 95 % interval.
    """

    mean: float
    ci95: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.ci95:.2f}"


def over_seeds(right: np.ndarray, queries: int) -> Score:
    """Return the mean accuracy of models that were trained with several seeds and tested on the same tasks.

    The interval covers two sources of chance: the choice of tasks and the choice of seeds. Their variances add up.

    Args:
        right: right answers of each model in each task, `[S, N]`.
        queries: number of queries in a task.
    """
    accuracy = 100 * right.astype(float) / queries
    variance = accuracy.mean(0).var() / accuracy.shape[1]
    if len(accuracy) > 1:
        variance += accuracy.mean(1).var(ddof=1) / len(accuracy)
    return Score(accuracy.mean(), 1.96 * math.sqrt(variance))


def paired(first: np.ndarray, second: np.ndarray, queries: int) -> Score:
    """Return the accuracy of the second method minus that of the first, on the same tasks.

    Differences are taken task by task, so that hard and easy tasks do not widen the interval.

    Args:
        first, second: right answers of each method, `[S, N]` or `[N]`.
        queries: number of queries in a task.
    """
    difference = second.astype(float) - first.astype(float)  # small unsigned integers would wrap around
    return over_seeds(np.atleast_2d(difference), queries)


def gain(
    before: Sequence[Record], after: Sequence[Record], answers: Callable[[Record], np.ndarray], queries: int
) -> Score:
    """Return the accuracy of the runs `after` minus that of the runs `before`, on the same tasks.

    Runs are paired by seed. Seeds that only one side has are left out.

    Args:
        before, after: runs with a parameter "seed".
        answers: returns the right answers of a run, `[N]`.
        queries: number of queries in a task.
    """
    first = {record.params["seed"]: answers(record) for record in before}
    second = {record.params["seed"]: answers(record) for record in after}
    seeds = sorted(first.keys() & second.keys())
    return paired(np.stack([first[seed] for seed in seeds]), np.stack([second[seed] for seed in seeds]), queries)


def by(records: Sequence[Record], *names: str) -> dict[Any, list[Record]]:
    """Group runs by some of their parameters. Groups and runs keep their order.

    Args:
        records: the runs.
        names: names of parameters.

    Returns:
        The runs of each group. A key is a tuple of the parameters' values, or the value itself if one is named.
    """
    found: dict[Any, list[Record]] = {}
    for record in records:
        key = tuple(record.params[name] for name in names)
        found.setdefault(key if len(names) > 1 else key[0], []).append(record)
    return found


def right(records: Sequence[Record], name: str) -> np.ndarray:
    """Return the array `name` of each run, stacked: the number of right answers `[S, N]`."""
    return np.stack([record.arrays[name] for record in records])


def metric(record: Record, name: str) -> Score:
    """Return a metric of a run with its 95 % interval, which is the metric "<name>_ci95"."""
    return Score(record.metrics[name], record.metrics[f"{name}_ci95"])


def bars(scores: Iterable[Score]) -> np.ndarray:
    """Return the means and the half-widths of the intervals, `[2, number of scores]`, for error bars in a figure."""
    return np.array([*scores]).reshape(-1, 2).T
