"""Made-up few-shot records for tests: the right answers are given, nothing is trained."""

from __future__ import annotations

import dataclasses

import numpy as np

from sibrepro.facts import runs
from sibrepro.few_shot.experiment import FewShot
from sibrepro.few_shot.rivals import Baseline

TASKS = 50
FULL = FewShot(features="shipped", test_episodes=5000)  # of which TASKS stand for all
QUICK = dataclasses.replace(FULL, steps=2000, test_episodes=1000)


def answers(accuracy: float, seed: int, queries: int = 75) -> np.ndarray:
    """Right answers of TASKS tasks, around an accuracy in percent."""
    return np.random.default_rng(seed).binomial(queries, accuracy / 100, TASKS).astype(np.uint8)


def sib(accuracy: float, p: FewShot = FULL, **changes: object) -> runs.Record:
    """The record of a SIB with this test accuracy in percent on one and on five shots."""
    p = dataclasses.replace(p, **changes)

    def compute(p: FewShot, folder):
        arrays = {
            f"{kind}/{shots}shot": answers(accuracy, p.seed + shots) for kind in ("best", "last") for shots in (1, 5)
        }
        metrics = {name: 100 * right.mean() / 75 for name, right in arrays.items()}
        metrics |= {f"{name}_ci95": 0.5 for name in arrays}
        history = {"step": np.array([1000, 2000]), "loss": np.array([1.0, 0.9]), "validation": np.array([0.5, 0.6])}
        return metrics | {"validation": accuracy - 5}, arrays | history

    return record("few_shot", p, compute)


def baseline(accuracy: float, **changes: object) -> runs.Record:
    p = Baseline(features="shipped", **changes)

    def compute(p: Baseline, folder):
        arrays = {"balanced": answers(accuracy, 7), "unbalanced": answers(accuracy - 9, 8)}
        metrics = {name: 100 * right.mean() / 75 for name, right in arrays.items()}
        metrics |= {
            "balanced_ci95": 0.4,
            "unbalanced_ci95": 0.4,
            "episodes_per_second": 123.4,
            "options": {"scale": 10.0},
        }
        return metrics, arrays

    return record("baseline", p, compute)


def anatomy(metrics, arrays) -> runs.Record:
    return record("anatomy", FewShot(), lambda p, folder: (metrics, arrays))


def realism(trained: runs.Record) -> runs.Record:
    def compute(p: FewShot, folder):
        metrics = {"balanced": 70.0, "balanced_ci95": 0.4, "unbalanced": 63.0, "unbalanced_ci95": 0.5}
        metrics |= {"averaged": 70.2, "averaged_ci95": 0.4}
        return metrics | {"orders/lowest": 69.9, "orders/highest": 70.1, "orders/changed": 4.0}, {}

    return record("realism", FewShot(**trained.params), compute)


def record(experiment: str, p: object, compute) -> runs.Record:
    compute.__module__ = "sibcore.sib"  # records are made by code of the package; here any will do
    return runs.compute_or_load(experiment, p, compute, long=True)
