"""The runs of notebook 05: those that its parameters ask for, and the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore.datasets.pacs import DOMAINS
from sibrepro.facts import Experiment, Record
from sibrepro.few_shot.plan import facts
from sibrepro.pacs.experiment import ADAPTATION, Adaptation, Origin, adapt, origin, turns_for
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters

METHODS = ("source-only", "Rot", "SIB", "SIB-Rot")
Key = tuple[str, int]  # method and K
Scores = dict[Key, dict[str, list[Record]]]  # by method and K, then by target, one of each seed

# What is published by kind of features: the settings, and of each method and K the number of seeds.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[Key, int]]] = {
    "upper": (
        {"features": "upper", "size": 128, "steps": 100, "batch": 16, "lr": 3e-4, "alpha": 1.0, "turns": "one"},
        {("source-only", 0): 2, ("Rot", 0): 2, ("SIB-Rot", 0): 1, ("SIB-Rot", 3): 1},
    ),
    "frozen": (
        {"features": "frozen", "steps": 300, "lr": 2e-3, "alpha": 1.0},
        {
            ("source-only", 0): 10,
            ("SIB", 3): 3,
            ("SIB-Rot", 0): 10,
            ("SIB-Rot", 1): 3,
            ("SIB-Rot", 3): 10,
            ("SIB-Rot", 5): 3,
        },
    ),
    "frozen, α = 0": (
        {"features": "frozen", "steps": 300, "lr": 2e-3, "alpha": 0.0},
        {("source-only", 0): 3, ("SIB-Rot", 0): 3, ("SIB-Rot", 3): 3},
    ),
    "shipped": (
        {"features": "shipped", "steps": 300, "lr": 2e-3, "alpha": 1.0},
        {("source-only", 0): 3, ("SIB", 3): 3, ("SIB-Rot", 0): 3, ("SIB-Rot", 3): 3},
    ),
}


@parameters
class AdaptationNotebook:
    """Notebook 05."""

    backbone: str = Field("efficientnet-lite0", description="feature network, with ImageNet's weights")
    features: Annotated[list[Literal["shipped", "frozen", "upper", "all"]], one_or_several] = Field(
        ["shipped"], min_length=1, description="the project's own; or of images, with none, a part or all of f trained"
    )
    size: Annotated[list[Count], one_or_several] = Field(
        [160], min_length=1, description="width of the images in pixels, for each of the features"
    )
    steps: Annotated[list[Count], one_or_several] = Field(
        [300], min_length=1, description="training steps, for each of the features"
    )
    targets: Annotated[list[Literal[DOMAINS]], one_or_several] = Field(
        list(DOMAINS), min_length=1, description="domains that are in turn without labels"
    )
    methods: Annotated[list[Literal[METHODS]], one_or_several] = Field(
        ["source-only", "SIB-Rot"], min_length=1, description="what to train"
    )
    K: Annotated[list[NonNegative], one_or_several] = Field([0, 3], min_length=1, description="of SIB-Rot, steps")
    eta: Positive = Field(0.03, description="step size of the inner updates, for means over a minibatch")
    batch: Annotated[list[Count], one_or_several] = Field(
        [32], min_length=1, description="images of each domain in a training step, for each of the features"
    )
    lr: Annotated[list[Positive], one_or_several] = Field(
        [3e-3], min_length=1, description="learning rate of Adam, for each of the features"
    )
    alpha: Annotated[list[Annotated[float, Field(ge=0)]], one_or_several] = Field(
        [1.0], min_length=1, description="Dirichlet spread of a source task's class proportions; 0: as they are"
    )
    seeds: Count = Field(1, description="trainings of each setting")

    def experiments(self) -> list[Adaptation]:
        """The grid. theta^0 = lambda without steps is a source-only or Rot classifier, so "SIB" has one K alone, 3."""
        together = (self.features, self.size, self.steps, self.batch, self.lr)
        if len({len(values) for values in together}) > 1:
            raise ValueError("features, size, steps, batch and lr belong together: give as many of each")
        return [
            Adaptation(
                backbone=self.backbone,
                features=features,
                size=size,
                steps=steps,
                target=target,
                method=method,
                K=K,
                eta=self.eta,
                batch=batch,
                lr=lr,
                turns=turns_for(features),
                alpha=alpha,
                seed=seed,
            )
            for features, size, steps, batch, lr in zip(*together, strict=True)
            for alpha in self.alpha
            for seed in range(self.seeds)
            for target in self.targets
            for method in self.methods
            if not (method == "Rot" and features in ("shipped", "frozen"))  # f learns nothing: it is source-only
            for K in {"SIB-Rot": self.K, "SIB": [3 if 3 in self.K else max(self.K)]}.get(method, [0])
        ]


def train(experiments: Sequence[Adaptation]) -> list[Record]:
    """The record of each experiment, from disk or trained now; those on the same features share them."""
    origins: dict[tuple, Origin] = {}
    records = []
    for p in experiments:
        key = (p.dataset, p.backbone, p.features, p.size)
        origins[key] = origins.get(key) or origin(p)
        records.append(adapt(p, origins[key]))
    return records


def scores_of(records: Sequence[Record]) -> Scores:
    """Runs of one notebook by (method, K), then by target, one of each seed."""
    found: Scores = {}
    for record in records:
        p = record.params
        found.setdefault((p["method"], p["K"]), {}).setdefault(p["target"], []).append(record)
    return found


def plan(name: str) -> dict[Key, dict[str, list[Adaptation]]]:
    """The settings of one kind of features in `PUBLISHED`."""
    settings, seeds = PUBLISHED[name]
    return {
        (method, K): {
            target: [Adaptation(target=target, method=method, K=K, seed=seed, **settings) for seed in range(count)]
            for target in DOMAINS
        }
        for (method, K), count in seeds.items()
    }


def published() -> dict[str, Scores]:
    """The published runs by kind of features, such as "frozen"; "frozen, α = 0" is without varied class proportions."""
    return {name: {key: facts(ADAPTATION, by_target) for key, by_target in plan(name).items()} for name in PUBLISHED}


def declared() -> dict[Experiment, list[Adaptation]]:
    """Every run of this study that is published."""
    every = [p for name in PUBLISHED for by_target in plan(name).values() for part in by_target.values() for p in part]
    return {ADAPTATION: every}


def records(scores: Scores) -> list[Record]:
    """All records behind some scores."""
    return [record for by_target in scores.values() for seeds in by_target.values() for record in seeds]


def seeds(scores: Scores, key: Key) -> int:
    """How many trainings of a method every target has."""
    return min((len(scores.get(key, {}).get(target, [])) for target in DOMAINS), default=0)


def name_of(key: Key) -> str:
    return f"{key[0]}, K = {key[1]}" if key[0] in ("SIB", "SIB-Rot") else key[0]
