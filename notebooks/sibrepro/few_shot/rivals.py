"""Baselines as run records, on the very tasks that SIB is tested on, and the statistics of comparing."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from sibcore.baselines import BASELINES, tune
from sibcore.evaluate import evaluate
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import unbalanced as realism
from sibrepro.few_shot.experiment import FewShot
from sibrepro.params import Count, parameters


@parameters
class Baseline:
    """One method of `sibcore.baselines`, tuned on validation classes and tested on the tasks that SIB is tested on."""

    method: str = Field("nearest-centroid", description="a key of BASELINES")
    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Literal["images", "shipped"] = Field("images", description="computed from images, or the project's own")
    ways: Count = Field(5, description="classes of a task, k")
    shots: Count = Field(1, description="labelled images per class")
    queries: Count = Field(15, description="unlabelled images per class")
    val_episodes: Count = Field(500, description="tasks of validation classes on which options are chosen")
    test_episodes: Count = Field(5000, description="tasks of test classes")

    def tasks(self) -> FewShot:
        """The experiment whose tasks these are."""
        return FewShot(**{name: value for name, value in runs.as_dict(self).items() if name != "method"})


def baseline(p: Baseline, **options: object) -> runs.Record:
    """The record of a baseline.

    metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet queries), each with "..._ci95"; the chosen
    "options"; "episodes_per_second"; arrays: queries answered rightly in each task, "balanced" and "unbalanced"
    """
    if p.method not in BASELINES:
        raise ValueError(f"there is no baseline {p.method!r}: expected one of {', '.join(BASELINES)}")
    setting = p.tasks()
    origin = few_shot.source(setting, **options)

    def compute(p: Baseline, folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        banks, cls = origin.banks(), BASELINES[p.method]
        chosen, _ = tune(cls, p.ways, banks["val"].features, few_shot.tasks(setting, banks["val"], "val"))
        metrics, arrays = {"options": chosen}, {}
        for name, alpha in {"balanced": None, "unbalanced": realism.ALPHA}.items():
            tasks = few_shot.tasks(setting, banks["test"], "test", alpha)
            began = time.perf_counter()
            score = evaluate(cls(p.ways, **chosen), banks["test"].features, tasks)
            metrics["episodes_per_second"] = len(tasks) / (time.perf_counter() - began)
            metrics |= {name: 100 * score.mean, f"{name}_ci95": 100 * score.interval}
            arrays[name] = score.right(p.ways * p.queries)
        return metrics, arrays

    return runs.compute_or_load("baseline", p, compute, data=origin.hashes, long=True)


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
