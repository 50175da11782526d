"""The runs of notebook 05: those that its parameters ask for, and the published ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore.datasets.pacs import DOMAINS
from sibrepro.facts import Experiment, Record
from sibrepro.few_shot.experiment import Source
from sibrepro.few_shot.plan import facts, flat
from sibrepro.pacs.experiment import ADAPTATION, FROZEN, Adaptation, adapt, source, turns_for
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters

METHODS = ("source-only", "Rot", "SIB", "SIB-Rot")
Key = tuple[str, int]  # method and K
Scores = dict[Key, dict[str, list[Record]]]  # by method and K, then by target, one of each seed

# What is published by kind of features: the settings, and the number of seeds by method and K.
_SHORT = {"steps": 300, "lr": 2e-3}
_UPPER = {"features": "upper", "size": 128, "steps": 100, "batch": 16, "lr": 3e-4, "alpha": 1.0, "turns": "one"}
_MANY = {"source-only": {0: 10}, "SIB": {3: 3}, "SIB-Rot": {0: 10, 1: 3, 3: 10, 5: 3}}
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, dict[int, int]]]] = {
    "upper": (_UPPER, {"source-only": {0: 2}, "Rot": {0: 2}, "SIB-Rot": {0: 1, 3: 1}}),
    "frozen": ({"features": "frozen", "alpha": 1.0, **_SHORT}, _MANY),
    "frozen, α = 0": ({"features": "frozen", "alpha": 0.0, **_SHORT}, {"source-only": {0: 3}, "SIB-Rot": {0: 3, 3: 3}}),
    "shipped": (
        {"features": "shipped", "alpha": 1.0, **_SHORT},
        {"source-only": {0: 3}, "SIB": {3: 3}, "SIB-Rot": {0: 3, 3: 3}},
    ),
}


@parameters
class AdaptationNotebook:
    """Notebook 05."""

    backbone: str = Field("efficientnet-lite0", description="feature network, with ImageNet's weights")
    features: Several[Literal["shipped", "frozen", "upper", "all"]] = Field(
        ["shipped"], description="the project's own; or of images, with none, a part or all of f trained"
    )
    size: Several[Count] = Field([160], description="width of the images in pixels, for each of the features")
    steps: Several[Count] = Field([300], description="training steps, for each of the features")
    targets: Several[Literal[DOMAINS]] = Field([*DOMAINS], description="domains that are in turn without labels")
    methods: Several[Literal[METHODS]] = Field(["source-only", "SIB-Rot"], description="what to train")
    K: Several[NonNegative] = Field([0, 3], description="of SIB-Rot, steps")
    eta: Positive = Field(0.03, description="step size of the inner updates, for means over a minibatch")
    batch: Several[Count] = Field(
        [32], description="images of each domain in a training step, for each of the features"
    )
    lr: Several[Positive] = Field([3e-3], description="learning rate of Adam, for each of the features")
    alpha: Several[Annotated[float, Field(ge=0)]] = Field(
        [1.0], description="Dirichlet spread of a source task's class proportions; 0: as they are"
    )
    seeds: Count = Field(1, description="trainings of each setting")

    def experiments(self) -> list[Adaptation]:
        """The grid. theta^0 = lambda without steps is a source-only or Rot classifier, so "SIB" has one K alone, 3."""
        together = {name: getattr(self, name) for name in ("features", "size", "steps", "batch", "lr")}
        if len({len(values) for values in together.values()}) > 1:
            raise ValueError("features, size, steps, batch and lr belong together: give as many of each")
        steps = {"SIB-Rot": self.K, "SIB": [3 if 3 in self.K else max(self.K)]}
        kinds = [(method, K) for method in self.methods for K in steps.get(method, [0])]
        found = []
        for values in zip(*together.values(), strict=True):
            setting = dict(zip(together, values, strict=True))
            turns = turns_for(setting["features"])
            base = Adaptation(backbone=self.backbone, eta=self.eta, turns=turns, **setting)
            found += [
                dataclasses.replace(p, method=method, K=K)
                for p in grid(base, alpha=self.alpha, seed=range(self.seeds), target=self.targets)
                for method, K in kinds
                if not (method == "Rot" and p.features in FROZEN)  # f learns nothing: it is source-only
            ]
        return found


def train(experiments: Sequence[Adaptation]) -> list[Record]:
    """The record of each experiment, from disk or trained now; those on the same features share them."""
    sources: dict[tuple, Source] = {}
    found = []
    for p in experiments:
        key = (p.dataset, p.backbone, p.features, p.size)
        sources[key] = sources.get(key) or source(p)
        found.append(adapt(p, sources[key]))
    return found


def plan(name: str) -> dict[Key, dict[str, list[Adaptation]]]:
    """The settings of one kind of features in `PUBLISHED`."""
    settings, seeds = PUBLISHED[name]
    found = {}
    for method, K, count in ((method, *both) for method, by_K in seeds.items() for both in by_K.items()):
        base = Adaptation(method=method, K=K, **settings)
        found[method, K] = {target: grid(base, target=[target], seed=range(count)) for target in DOMAINS}
    return found


def published() -> dict[str, Scores]:
    """The published runs by kind of features, such as "frozen"; "frozen, α = 0" is without varied class proportions."""
    return {name: {key: facts(ADAPTATION, by_target) for key, by_target in plan(name).items()} for name in PUBLISHED}


def declared() -> dict[Experiment, list[Adaptation]]:
    """Every run of this study that is published."""
    return {ADAPTATION: [p for name in PUBLISHED for p in records(plan(name))]}


def records(scores: Mapping[Key, Mapping[str, list[Any]]]) -> list[Any]:
    """All records behind some scores."""
    return [record for by_target in scores.values() for record in flat(by_target)]


def seeds(scores: Scores, key: Key) -> int:
    """How many trainings of a method every target has."""
    return min((len(scores.get(key, {}).get(target, [])) for target in DOMAINS), default=0)


def name_of(key: Key) -> str:
    return f"{key[0]}, K = {key[1]}" if key[0] in ("SIB", "SIB-Rot") else key[0]
