"""Made-up records of few-shot runs: their answers are given, nothing is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_up
import numpy as np
import pytest
import torch
from torch import Tensor

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.vision.features import Features
from sibrepro.facts import Experiment, Record, publish
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.facts.record import experiment_of
from sibrepro.meta_training import shipped
from sibrepro.meta_training.along_the_steps import DIAGNOSTICS, diagnose
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.rivals import RIVAL, Rival

TASKS = 50  # test tasks of every record, whatever its parameters say
QUERIES = 75  # queries of a task
FULL = FewShot(features="shipped", test_episodes=5000)  # the paper's protocol on CIFAR-FS
QUICK = dataclasses.replace(FULL, steps=2000, test_episodes=1000)


def own_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `folder` a project that has published nothing but an empty file of features (CIFAR-FS, Conv-4-64)."""
    monkeypatch.setenv("SIB_HOME", str(folder))
    place = shipped.file("cifar-fs", "conv4-64")
    place.parent.mkdir(parents=True)
    place.touch()


def published(*records: Record) -> None:
    """Publish these records."""
    for made in records:
        publish.add(EXPERIMENTS[experiment_of(made.id)], [made])


def computed_here(*records: Record) -> None:
    """Keep records as runs of this machine, even if the same runs are published."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SIB_RECOMPUTE", "1")
        for made in records:
            experiment = EXPERIMENTS[experiment_of(made.id)]
            made_up.as_if_computed(experiment, experiment.settings_of(made), (made.metrics, made.arrays))


def sib(accuracy: float, p: FewShot = FULL, **changes: object) -> Record:
    """Return the record of a trained SIB.

    Args:
        accuracy: its test accuracy in percent, on one and on five shots, with the best and the last checkpoint.
        p: the settings of the run.
        changes: settings that differ from `p`.
    """
    p = dataclasses.replace(p, **changes)
    metrics, arrays = {"validation": accuracy - 5.0}, {}
    for place, name in enumerate(("best/1shot", "best/5shot", "last/1shot", "last/5shot")):
        arrays[name] = answers(accuracy, seed=100 * p.seed + place)
        metrics |= {name: percent(arrays[name]), f"{name}_ci95": 0.5}
    history = {"step": np.array([1000, 2000]), "loss": np.array([1.0, 0.9]), "validation": np.array([0.5, 0.6])}
    return record(FEW_SHOT, p, metrics, arrays | history)


def rival(accuracy: float, **changes: object) -> Record:
    """Return the record of a rival at the full protocol.

    Args:
        accuracy: its test accuracy in percent on balanced queries. On unbalanced ones it is 9 points lower.
        changes: settings of the run that differ from the default.
    """
    p = Rival(**({"features": "shipped", "val_episodes": 1000} | changes))
    arrays = {"balanced": answers(accuracy, seed=7), "unbalanced": answers(accuracy - 9, seed=8)}
    metrics = {"episodes_per_second": 123.4, "options": {"scale": 10.0}}
    for name, right in arrays.items():
        metrics |= {name: percent(right), f"{name}_ci95": 0.4}
    return record(RIVAL, p, metrics, arrays)


def diagnosed(**changes: object) -> Record:
    """Return the record of the diagnostics of an untrained SIB, on small random tasks."""
    p = dataclasses.replace(FULL, **changes)
    labels = torch.arange(8).repeat_interleave(20)
    features = torch.randn(160, 6, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(8, 6)[labels]
    bank = Features(features, torch.empty(0), labels, tuple("abcdefgh"), "")
    tasks = EpisodeSampler(labels, p.ways, p.shots, 5, seed=0).sample(0, 120)
    return record(DIAGNOSTICS, p, *diagnose(SIB(p.ways, 6, p.K, 0.05), bank, tasks))


def unbalanced(trained: Record) -> Record:
    """Return the record of a trained SIB's test on unbalanced queries."""
    metrics = {
        "balanced": 70.0,
        "balanced_ci95": 0.4,
        "unbalanced": 63.0,
        "unbalanced_ci95": 0.5,
        "averaged": 70.2,
        "averaged_ci95": 0.4,
        "orders/lowest": 69.9,
        "orders/highest": 70.1,
        "orders/changed": 4.0,
    }
    return record(UNBALANCED, FEW_SHOT.settings_of(trained), metrics, {})


def answers(accuracy: float, seed: int) -> np.ndarray:
    """Draw how many queries of each task are answered rightly, `[TASKS]`, for an accuracy in percent."""
    return np.random.default_rng(seed).binomial(QUERIES, accuracy / 100, TASKS).astype(np.uint8)


def percent(right: np.ndarray) -> float:
    """Return the accuracy in percent, given how many queries of each task are answered rightly."""
    return 100 * float(right.mean()) / QUERIES


def record(
    experiment: Experiment, p: object, metrics: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
) -> Record:
    """Return a record of these settings, with a checkpoint of one number."""
    made = made_up.record(experiment, p, dict(metrics), arrays)
    return dataclasses.replace(made, files=NothingTrained())


class NothingTrained:
    """The `sibrepro.facts.record.Files` of a run whose checkpoint is one number."""

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors of a checkpoint, and its description."""
        return {"number": torch.zeros(1)}, {}

    def checkpoint_hash(self, name: str) -> str:
        """Return a hash that no file has."""
        return "0" * 64

    def path(self, name: str) -> Path:
        """Raise FileNotFoundError: this run left no files."""
        raise FileNotFoundError(name)
