"""Made-up few-shot records for tests: the right answers are given, nothing is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up import as_if_computed
from torch import Tensor

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.vision.features import Features
from sibrepro.facts import Experiment, Record, publish
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.facts.record import as_dict, experiment_of
from sibrepro.meta_training import shipped
from sibrepro.meta_training.along_the_steps import INSIDE, diagnose
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.rivals import RIVAL, Rival

TASKS = 50  # made up of each run, whatever its parameters say
QUERIES = 75  # of a task
FULL = FewShot(features="shipped", test_episodes=5000)  # the paper's protocol on CIFAR-FS
QUICK = dataclasses.replace(FULL, steps=2000, test_episodes=1000)


def own_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project in `folder` that has published nothing but (empty) features of CIFAR-FS under Conv-4-64."""
    monkeypatch.setenv("SIB_HOME", str(folder))
    place = shipped.file("cifar-fs", "conv4-64")
    place.parent.mkdir(parents=True)
    place.touch()


def published(*records: Record) -> None:
    """Put records among the published ones."""
    for name in dict.fromkeys(experiment_of(record.id) for record in records):
        publish.add(EXPERIMENTS[name], [record for record in records if experiment_of(record.id) == name])


def computed_here(*records: Record) -> None:
    """Keep records as runs of this machine, even of what is published."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SIB_RECOMPUTE", "1")
        for made in records:
            experiment = EXPERIMENTS[experiment_of(made.id)]
            as_if_computed(experiment, experiment.settings_of(made), (made.metrics, made.arrays))


def sib(accuracy: float, p: FewShot = FULL, **changes: object) -> Record:
    """The record of a SIB with this test accuracy in percent on one and on five shots."""
    p = dataclasses.replace(p, **changes)
    names = [f"{kind}/{shots}shot" for kind in ("best", "last") for shots in (1, 5)]
    arrays = {name: answers(accuracy, seed=100 * p.seed + place) for place, name in enumerate(names)}
    metrics = {name: percent(arrays[name]) for name in names} | {f"{name}_ci95": 0.5 for name in names}
    history = {"step": np.array([1000, 2000]), "loss": np.array([1.0, 0.9]), "validation": np.array([0.5, 0.6])}
    return record(FEW_SHOT, p, metrics | {"validation": accuracy - 5.0}, arrays | history)


def rival(accuracy: float, **changes: object) -> Record:
    """The record of a rival at the full protocol; unbalanced queries cost it 9 points."""
    p = Rival(**({"features": "shipped", "val_episodes": 1000} | changes))
    arrays = {"balanced": answers(accuracy, seed=7), "unbalanced": answers(accuracy - 9, seed=8)}
    metrics = {name: percent(right) for name, right in arrays.items()} | {f"{name}_ci95": 0.4 for name in arrays}
    return record(RIVAL, p, metrics | {"episodes_per_second": 123.4, "options": {"scale": 10.0}}, arrays)


def inside(**changes: object) -> Record:
    """The record of looking into an untrained SIB, on small random tasks."""
    p = dataclasses.replace(FULL, **changes)
    labels = torch.arange(8).repeat_interleave(20)
    features = torch.randn(160, 6, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(8, 6)[labels]
    bank = Features(features, torch.empty(0), labels, tuple("abcdefgh"), "")
    tasks = EpisodeSampler(labels, p.ways, p.shots, 5, seed=0).sample(0, 120)
    return record(INSIDE, p, *diagnose(SIB(p.ways, 6, p.K, 0.05), bank, tasks))


def unbalanced(trained: Record) -> Record:
    metrics = {"balanced": 70.0, "balanced_ci95": 0.4, "unbalanced": 63.0, "unbalanced_ci95": 0.5}
    metrics |= {"averaged": 70.2, "averaged_ci95": 0.4}
    metrics |= {"orders/lowest": 69.9, "orders/highest": 70.1, "orders/changed": 4.0}
    return record(UNBALANCED, FEW_SHOT.settings_of(trained), metrics, {})


def answers(accuracy: float, seed: int) -> np.ndarray:
    """Right answers of TASKS tasks, around an accuracy in percent."""
    return np.random.default_rng(seed).binomial(QUERIES, accuracy / 100, TASKS).astype(np.uint8)


def percent(right: np.ndarray) -> float:
    return 100 * float(right.mean()) / QUERIES


def record(
    experiment: Experiment, p: object, metrics: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
) -> Record:
    made = {"data": {}, "seed": as_dict(p).get("seed")}
    return Record(experiment.id(p), experiment.version, as_dict(p), dict(metrics), made, arrays or {}, NothingTrained())


class NothingTrained:
    """`sibrepro.facts.record.Files` with a checkpoint of one number."""

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {"number": torch.zeros(1)}, {}

    def checkpoint_hash(self, name: str) -> str:
        return "0" * 64

    def path(self, name: str) -> Path:
        raise FileNotFoundError(name)
