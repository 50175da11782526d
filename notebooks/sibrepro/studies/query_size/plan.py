"""The runs of notebook 06: those that its parameters ask for, and the published ones over n."""

from __future__ import annotations

import dataclasses

from pydantic import Field

from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.meta_training.runs import SEEDS, protocol
from sibrepro.meta_training.settings import FewShot, Where
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.studies.query_size.experiment import QUERY_SIZE, RESCALED

SIZES, SHOTS = (3, 5, 10, 15, 30, 45), (1, 5)  # of the paper's table
BACKBONES = {"mini-imagenet": ["conv4-128"], "cifar-fs": ["conv4-128", "conv4-64"]}
Key = tuple[str, int, int]  # backbone, shots, n
# What is published differs from the full protocol where it had to: Conv-4-128 on CIFAR-FS after a short pretraining.
SHORTER = {("cifar-fs", "conv4-128"): {"epochs": 10, "steps": 10_000}}


@parameters
class QuerySizeNotebook:
    """Notebook 06."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbones: Several[str] = Field(["conv4-64"], description="feature networks")
    features: Where = Field("shipped", description="from images, or the project's where it has them")
    epochs: NonNegative = Field(
        0, description="of pretraining, of a network from images; 0: as many as its recipe says"
    )
    n: Several[Count] = Field([3, 15, 30], description="queries per class in training")
    shots: Several[Count] = Field([1], description="labelled images per class")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(1000, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes that choose a checkpoint")
    test_episodes: Count = Field(1000, description="tasks of validation, and of test classes that are scored")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, the seeds of a setting together."""
        names = ("features", "K", "eta", "steps", "val_episodes", "test_episodes")
        common = {name: getattr(self, name) for name in names}
        bases = [protocol(self.dataset, backbone, **common) for backbone in self.backbones]
        bases = [dataclasses.replace(p, epochs=self.epochs) if p.features == "images" else p for p in bases]
        varied = {"shots": self.shots, "queries": self.n, "seed": range(self.seed, self.seed + self.seeds)}
        return [p for base in bases for p in grid(base, **varied)]


def plan(dataset: str) -> dict[Key, list[FewShot]]:
    """Three seeds at n = 15, the protocol's own number, else one."""
    found = {}
    for backbone in BACKBONES[dataset]:
        base = protocol(dataset, backbone, **SHORTER.get((dataset, backbone), {}))
        for p in grid(base, shots=SHOTS, queries=SIZES):
            seeds = SEEDS if p.queries == base.queries else SEEDS[:1]
            found[backbone, p.shots, p.queries] = grid(p, seed=seeds)
    return found


def published(dataset: str = "cifar-fs", experiment: Experiment = QUERY_SIZE) -> dict[Key, list[Record]]:
    """The published runs of `query_size`, or of `RESCALED`."""
    return facts(experiment, plan(dataset))


def declared() -> dict[Experiment, list[FewShot]]:
    """Every run of this study that is, or is to be, published."""
    settings = [p for dataset in BACKBONES for p in flat(plan(dataset))]
    return {FEW_SHOT: settings, QUERY_SIZE: settings, RESCALED: settings}


def asked(p: QuerySizeNotebook) -> dict[Experiment, list[FewShot]]:
    """Return the runs that the notebook's parameters ask for."""
    return {experiment: p.experiments() for experiment in (FEW_SHOT, QUERY_SIZE, RESCALED)}
