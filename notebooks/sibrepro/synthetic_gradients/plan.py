"""The appendix's study of synthetic gradients: inductive SIB against SIB over K and eta; its runs."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import Field

from sibrepro.facts import Experiment, Record
from sibrepro.few_shot.plan import SEEDS, facts, protocol
from sibrepro.few_shot.settings import FEW_SHOT, INSIDE, FewShot
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters

Variant = Literal["SIB", "inductive SIB"]
Key = tuple[Variant, int, int, float]  # variant, trained shots, K, eta
TESTED = (1, 5)  # shots
RATE = 1e-3  # of the outer loop, and eta where nothing else is said
STEPS, ETAS = (1, 3, 5), (1e-1, 1e-2, 1e-3, 1e-4)  # of the paper's table
STAGES = (100, 300, 1000, 3000, 10_000, 40_000)  # lengths of one training at which xi is looked at


@parameters
class SyntheticGradientsNotebook:
    """Notebook 04."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Literal["images", "shipped"] = Field("shipped", description="computed from images, or the project's own")
    variants: Annotated[list[Variant], one_or_several] = Field(
        ["SIB", "inductive SIB"], min_length=1, description="which kinds to train"
    )
    trained_shots: Annotated[list[Count], one_or_several] = Field(
        [1], min_length=1, description="labelled images per class in training"
    )
    K: Annotated[list[NonNegative], one_or_several] = Field([0, 1, 3], min_length=1, description="steps")
    eta: Annotated[list[Positive], one_or_several] = Field(
        [1e-2, 1e-3], min_length=1, description="step sizes of the inner update"
    )
    steps: Count = Field(1000, description="meta-training steps")
    stages: Annotated[list[Count], one_or_several] = Field(
        [100, 300], description="further numbers of steps, to watch xi learn"
    )
    tied: bool = Field(False, description="train with the outer learning rate tied to eta too, as the release does")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(1000, description="tasks of test classes")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")

    @property
    def base(self) -> FewShot:
        names = ("dataset", "backbone", "features", "steps", "val_episodes", "test_episodes", "seed")
        return FewShot(**{name: getattr(self, name) for name in names})

    def experiments(self) -> list[FewShot]:
        """The grid; with K = 0 there is no step and no eta, and inductive SIB is trained on the first shots alone."""
        settings = [
            dataclasses.replace(self.base, transductive=variant == "SIB", shots=shots, K=K, eta=eta if K else RATE)
            for variant in self.variants
            for shots in (self.trained_shots if variant == "SIB" else self.trained_shots[:1])
            for K in self.K
            for eta in self.eta
        ]
        return list(dict.fromkeys(settings))

    def tied_experiments(self) -> list[FewShot]:
        """1-shot, K = 3, with one number for the inner and the outer rate."""
        etas = [eta for eta in self.eta if eta != RATE]
        return [dataclasses.replace(self.base, shots=1, K=3, eta=eta, lr=eta) for eta in etas if self.tied]

    def stage_experiments(self) -> list[FewShot]:
        """The beginnings of one training: the same tasks in the same order, stopped earlier."""
        return [dataclasses.replace(self.base, shots=1, K=3, steps=steps) for steps in (*self.stages, self.steps)]


def variant(record: Record) -> Variant:
    return "SIB" if record.params["transductive"] else "inductive SIB"


def key(record: Record) -> Key:
    p = record.params
    return variant(record), p["shots"], p["K"], p["eta"]


def grid(dataset: str, backbone: str) -> dict[Key, list[FewShot]]:
    """The paper's grid at its protocol; three seeds of SIB at eta = 1e-3, else one."""
    plan: dict[Key, list[FewShot]] = {}
    for kind, shots in (("inductive SIB", 1), ("SIB", 1), ("SIB", 5)):
        base = protocol(dataset, backbone, shots=shots, transductive=kind == "SIB")
        for K, eta in ((0, RATE), *((K, eta) for K in STEPS for eta in ETAS)):
            seeds = SEEDS if kind == "SIB" and eta == RATE else SEEDS[:1]
            plan[kind, shots, K, eta] = [dataclasses.replace(base, K=K, eta=eta, seed=seed) for seed in seeds]
    return plan


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[Key, list[Record]]:
    return facts(FEW_SHOT, grid(dataset, backbone))


def tied(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[float, list[Record]]:
    """1-shot runs with K = 3 by eta, with the outer rate tied to it, as the release does."""
    return facts(FEW_SHOT, {eta: [protocol(dataset, backbone, K=3, eta=eta, lr=eta)] for eta in sorted(ETAS)})


def looked_into(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[int, Record]:
    """What the steps do inside tasks, by K, at eta = 1e-3 on one shot."""
    plan = {K: protocol(dataset, backbone, K=K) for K in STEPS}
    return {K: record for K, p in plan.items() if (record := INSIDE.published(p))}


def stages(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> list[Record]:
    """The same of one training with K = 3, stopped at several lengths."""
    return INSIDE.facts([protocol(dataset, backbone, K=3, steps=steps) for steps in STAGES])


def declared() -> dict[Experiment, list[FewShot]]:
    """Every run of this study that is published."""
    origin = "cifar-fs", "conv4-64"
    stopped = [protocol(*origin, K=3, steps=steps) for steps in STAGES]
    return {
        FEW_SHOT: [
            *(p for settings in grid(*origin).values() for p in settings),
            *(protocol(*origin, K=3, eta=eta, lr=eta) for eta in ETAS),
            *stopped,
        ],
        INSIDE: [*stopped, *(protocol(*origin, K=K) for K in STEPS)],
    }
