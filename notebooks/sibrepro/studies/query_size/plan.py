"""The runs of notebook 06: those that its parameters ask for, and those that are to be published.

The published runs train SIB with n = 3 to 45 queries per class.
"""

from __future__ import annotations

import dataclasses

from pydantic import Field

from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.meta_training.runs import SEEDS, protocol
from sibrepro.meta_training.settings import FewShot, Where
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.studies.query_size.experiment import QUERY_SIZE, RESCALED

SIZES, SHOTS = (3, 5, 10, 15, 30, 45), (1, 5)  # The values of n and of shots in the paper's table.
BACKBONES = {"mini-imagenet": ["conv4-128"], "cifar-fs": ["conv4-128", "conv4-64"]}  # The paper's own data set first.
Key = tuple[str, int, int]  # A setting: backbone, shots, n.
# Conv-4-128 on CIFAR-FS has a short pretraining and a shorter meta-training than the full protocol.
SHORTER = {("cifar-fs", "conv4-128"): {"epochs": 10, "steps": 10_000}}


@parameters
class QuerySizeNotebook:
    """The parameters of notebook 06."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbones: Several[str] = Field(["conv4-64"], description="feature networks")
    features: Where = Field("shipped", description="computed from images, or the project's own where it has them")
    epochs: NonNegative = Field(
        0, description="epochs of pretraining, if the network is trained here; 0: as in its recipe"
    )
    n: Several[Count] = Field([3, 15, 30], description="queries per class in training")
    shots: Several[Count] = Field([1], description="labelled images per class")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(1000, description="meta-training steps")
    seeds: Count = Field(1, description="seeds of each meta-training")
    val_episodes: Count = Field(200, description="tasks of validation classes that select the checkpoint")
    test_episodes: Count = Field(1000, description="tasks of validation classes and of test classes that are reported")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """Return the settings of all meta-trainings. The seeds of a setting follow each other."""
        names = ("features", "K", "eta", "steps", "val_episodes", "test_episodes")
        common = {name: getattr(self, name) for name in names}
        found = []
        for backbone in self.backbones:
            base = protocol(self.dataset, backbone, **common)
            if base.features == "images":  # The features in the repository have their own pretraining.
                base = dataclasses.replace(base, epochs=self.epochs)
            seeds = range(self.seed, self.seed + self.seeds)
            found += grid(base, shots=self.shots, queries=self.n, seed=seeds)
        return found


def plan(dataset: str) -> dict[Key, list[FewShot]]:
    """Return the settings to publish on an image set: three seeds for the protocol's own n = 15, else one.

    Args:
        dataset: a key of `BACKBONES`.
    """
    found = {}
    for backbone in BACKBONES[dataset]:
        base = protocol(dataset, backbone, **SHORTER.get((dataset, backbone), {}))
        for p in grid(base, shots=SHOTS, queries=SIZES):
            seeds = SEEDS if p.queries == base.queries else SEEDS[:1]
            found[backbone, p.shots, p.queries] = grid(p, seed=seeds)
    return found


def published(dataset: str = "cifar-fs", experiment: Experiment = QUERY_SIZE) -> dict[Key, list[Record]]:
    """Return the published runs by setting, one of each seed.

    Args:
        dataset: a key of `BACKBONES`.
        experiment: `QUERY_SIZE` or `RESCALED`.
    """
    return facts(experiment, plan(dataset))


def declared() -> dict[Experiment, list[FewShot]]:
    """Return the settings of every run of this study that is, or is to be, published, by experiment."""
    settings = [p for dataset in BACKBONES for p in flat(plan(dataset))]
    return dict.fromkeys((FEW_SHOT, QUERY_SIZE, RESCALED), settings)


def asked(p: QuerySizeNotebook) -> dict[Experiment, list[FewShot]]:
    """Return the runs that the notebook's parameters ask for."""
    return dict.fromkeys((FEW_SHOT, QUERY_SIZE, RESCALED), p.experiments())
