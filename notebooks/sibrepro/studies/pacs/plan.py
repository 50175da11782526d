"""The runs of notebook 05: those that its parameters ask for, and the published ones."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore.datasets import pacs
from sibcore.datasets.pacs import DOMAINS
from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.studies.pacs import banks
from sibrepro.studies.pacs.experiment import ADAPTATION, Adaptation, adapt, inputs
from sibrepro.studies.pacs.first_stage import FINE_TUNED, FineTuned, first_stage
from sibrepro.studies.pacs.rotations import rotations
from sibrepro.studies.pacs.second_stage import ETAS, RIVALS, SECOND_STAGE, STATISTICS, TASKS, SecondStage, second_stage

Key = tuple[str, int]  # method and K
Scores = dict[Key, dict[str, list[Record]]]  # by method and K, then by target, one of each seed

# What is published by kind of features: the settings, and the number of seeds by method and K.
_UPPER = {"features": "upper", "size": 128, "steps": 100, "batch": 16, "lr": 3e-4, "alpha": 1.0, "turns": "one"}
_SHORT = {"steps": 300, "lr": 2e-3, "alpha": 1.0}
_PLAIN, _SIB, _SIB_ROT, _SIB_ROT_3 = ("source-only", 0), ("SIB", 3), ("SIB-Rot", 0), ("SIB-Rot", 3)
PUBLISHED: dict[str, tuple[dict[str, Any], dict[Key, int]]] = {
    "upper": (_UPPER, {_PLAIN: 2, ("Rot", 0): 2, _SIB_ROT: 1, _SIB_ROT_3: 1}),
    "frozen": (_SHORT, {_PLAIN: 10, _SIB: 3, _SIB_ROT: 10, ("SIB-Rot", 1): 3, _SIB_ROT_3: 10, ("SIB-Rot", 5): 3}),
    "frozen, α = 0": (_SHORT | {"alpha": 0.0}, {_PLAIN: 3, _SIB_ROT: 3, _SIB_ROT_3: 3}),
    "shipped": (_SHORT | {"features": "shipped"}, {_PLAIN: 3, _SIB: 3, _SIB_ROT: 3, _SIB_ROT_3: 3}),
}


# Two stages. Stage 1: which learning rate, size and share of grey images, in 80 steps; networks of two sources, on
# whose third xi learns and choices are made; networks of three. Stage 2: what is published for each target, three seeds
# a network.
SEARCH = [
    FineTuned(without=without, steps=80, **changes)
    for without in ("art_painting+cartoon", "photo+sketch")
    for changes in ({}, {"peak_lr": 5e-4}, {"size": 64}, {"size": 128}, {"grey": 0.3})
]
PAIRS = [FineTuned(without="+".join(two)) for two in itertools.combinations(DOMAINS, 2)]
FIRST_SEEDS, PER_FIRST, TURNED = (0, 1), 3, 6
IMAGENET_SIZE = 160  # pixels at which a network that was not fine-tuned sees the images
TRIPLES = [FineTuned(without=name, turned=n, seed=s) for s in FIRST_SEEDS for name in DOMAINS for n in (0, TURNED)]
STAGES: dict[Key, dict[str, Any]] = {
    ("source-only", 0): {"network": "source-only", "K": 0},
    ("Rot", 0): {"K": 0},
    **{("SIB", K): {"K": K, "tasks": "", "other_batches": K == 3} for K in (1, 3, 5)},
    ("SIB-Rot", 0): {"K": 0, "start": "turned"},
    **{("SIB-Rot", K): {"K": K, "tasks": "", "start": "turned"} for K in (1, 3, 5)},
}
VARIANTS: dict[str, dict[str, Any]] = {  # of SIB with K = 3
    "on the source-only network": {"network": "source-only"},
    "equivariant ξ": {"xi": "equivariant"},
    "the paper's ξ": {"xi": "paper"},
    "set-aware ξ, tasks of unseen domains": {},
    "set-aware ξ, tasks of the sources": {"tasks": "sources"},
    "the paper's ξ, tasks of the sources": {"xi": "paper", "tasks": "sources"},
    "trained and tested on minibatches of 256": {"images": 256, "test_batch": 256},
}
SEEN: dict[str, dict[str, Any]] = {  # the classifier of stage 1, by what is seen of the target without labels
    f"{network}, {look}": {"network": network, "K": 0, "look": look}
    for network in ("source-only", "Rot")
    for look in ("sources/sources/0", *(f"{whose}/own/{weight}" for weight in (0, 2) for whose in STATISTICS))
}
TURN_RATES = {f"rate {rate:g}": {"K": 0, "start": "turned", "turn_rate": rate} for rate in (0.1, 1.0, 10.0, 100.0)}
IN_ITS_PLACE = [  # each source in turn for the target
    SecondStage(target=target, held=held, eta=eta, tasks=tasks)
    for target in DOMAINS
    for held in DOMAINS
    if held != target
    for eta in ETAS
    for tasks in TASKS
]
OTHERS = VARIANTS | SEEN | TURN_RATES | {name: {"method": name} for name in RIVALS}


@parameters
class StagesNotebook:
    """Notebook 05."""

    networks: Literal["shipped", "images"] = Field(
        "shipped", description="stage 1: what comes with the project, or anew"
    )
    backbone: str = Field("efficientnet-lite0", description="of stage 1 from images: feature network")
    size: Count = Field(96, description="likewise: width of the images in pixels")
    first_steps: Count = Field(300, description="likewise: training steps")
    first_batch: Count = Field(24, description="likewise: images of each source in a step")
    peak_lr: Positive = Field(1e-3, description="likewise: highest learning rate")
    targets: Several[Literal[DOMAINS]] = Field([*DOMAINS], description="domains that are in turn without labels")
    K: Several[NonNegative] = Field([0, 3], description="synthetic gradient steps")
    xi: Literal["set", "equivariant", "paper"] = Field("set", description="what xi sees")
    tasks: Literal["shift", "sources", ""] = Field(
        "shift", description="what xi learns from; empty: as the sources say"
    )
    eta: Annotated[float, Field(ge=0)] = Field(
        0.3, description="step size of the inner update, for means over a minibatch; 0: as the sources say"
    )
    steps: Count = Field(200, description="training steps of xi")
    seeds: Count = Field(1, description="trainings of each setting")
    jointly: bool = Field(False, description="also in one stage, to the letter: all of f and xi together, from images")

    def networks_of(self) -> list[FineTuned]:
        """Stage 1 from images: networks of two sources, and of three without and with rotations."""
        same = {"backbone": self.backbone, "size": self.size, "steps": self.first_steps}
        same |= {"batch": self.first_batch, "peak_lr": self.peak_lr}
        return [dataclasses.replace(p, **same) for p in (*PAIRS, *TRIPLES)]

    def experiments(self) -> list[SecondStage]:
        """Source-only, and Rot or SIB with each K."""
        base = SecondStage(backbone=self.backbone, xi=self.xi, tasks=self.tasks, eta=self.eta, steps=self.steps)
        kinds = [{"network": "source-only", "K": 0}, *({"K": K} for K in self.K)]
        several = [dataclasses.replace(base, **kind) for kind in kinds]
        return [p for one in several for p in grid(one, target=self.targets, seed=range(self.seeds))]

    def one_stage(self) -> list[Adaptation]:
        """60 epochs of 75 steps with 96 labelled images, as the paper has them."""
        if not self.jointly:
            return []
        base = Adaptation(backbone=self.backbone, features="all", size=self.size, steps=self.first_steps, turns="one")
        kinds = [("source-only", 0), ("Rot", 0), ("SIB", 3), *(("SIB-Rot", K) for K in self.K)]
        several = [dataclasses.replace(base, method=method, K=K, alpha=1.0) for method, K in kinds]
        return [p for one in several for p in grid(one, target=self.targets, seed=range(self.seeds))]


def run(p: StagesNotebook) -> list[Record]:
    """The runs that the notebook's parameters ask for, from the project's networks or from images."""
    bank = None
    if p.networks == "images":
        data = pacs.load(size=p.size)
        plain = rotations(pacs.load(size=IMAGENET_SIZE), p.backbone)
        bank = banks.assemble([first_stage(one, data) for one in p.networks_of()], data, plain)
    jointly = p.one_stage()
    images = inputs(jointly[0]) if jointly else None  # which all of them share
    return [*(second_stage(one, bank) for one in p.experiments()), *(adapt(one, images) for one in jointly)]


def stages(changes: Mapping[str, Any], count: int = PER_FIRST) -> dict[str, list[SecondStage]]:
    """Settings of stage 2 by target: so many seeds for each network of stage 1."""
    seeds = [(first * PER_FIRST + seed, first) for first in FIRST_SEEDS for seed in range(count)]
    return {
        target: [SecondStage(target=target, seed=seed, first_seed=first, **changes) for seed, first in seeds]
        for target in DOMAINS
    }


def other_stages(name: str) -> dict[str, list[SecondStage]]:
    """Likewise, of what is not among the paper's four methods: several seeds of what is trained."""
    return stages(OTHERS[name], PER_FIRST if name in VARIANTS else 1)


def others(names: Mapping[str, Any]) -> dict[str, dict[str, list[Record]]]:
    """The published runs of variants, looks or rivals, by name and target."""
    found = {name: facts(SECOND_STAGE, other_stages(name)) for name in names}
    return {name: by_target for name, by_target in found.items() if by_target}


def plan(name: str) -> dict[Key, dict[str, list[Adaptation]]]:
    """The settings of one kind of features in `PUBLISHED`."""
    settings, seeds = PUBLISHED[name]
    found = {}
    for (method, K), count in seeds.items():
        base = Adaptation(method=method, K=K, **settings)
        found[method, K] = {target: grid(base, target=[target], seed=range(count)) for target in DOMAINS}
    return found


def published() -> dict[str, Scores]:
    """The published runs by kind of features: "fine-tuned" ones of two stages, and those of one, such as "frozen".

    "frozen, α = 0" is without varied class proportions.
    """
    one = {name: {key: facts(ADAPTATION, by_target) for key, by_target in plan(name).items()} for name in PUBLISHED}
    return {"fine-tuned": {key: facts(SECOND_STAGE, stages(changes)) for key, changes in STAGES.items()}, **one}


def declared() -> dict[Experiment, list[Adaptation]]:
    """Every run of this study that is published."""
    second = [p for changes in STAGES.values() for p in flat(stages(changes))]
    second += [p for name in OTHERS for p in flat(other_stages(name))]
    return {
        ADAPTATION: [p for name in PUBLISHED for p in records(plan(name))],
        FINE_TUNED: [*SEARCH, *PAIRS, *TRIPLES],
        SECOND_STAGE: [*IN_ITS_PLACE, *second],
    }


def records(scores: Mapping[Key, Mapping[str, list[Any]]]) -> list[Any]:
    """All records behind some scores."""
    return [record for by_target in scores.values() for record in flat(by_target)]


def seeds(scores: Scores, key: Key) -> int:
    """How many trainings of a method every target has."""
    return min((len(scores.get(key, {}).get(target, [])) for target in DOMAINS), default=0)


def name_of(key: Key) -> str:
    return f"{key[0]}, K = {key[1]}" if key[0] in ("SIB", "SIB-Rot") else key[0]


def asked(p: StagesNotebook) -> dict[Experiment, list[Any]]:
    """Return the runs that the notebook's parameters ask for, of the networks that come with the project."""
    return {SECOND_STAGE: p.experiments() if p.networks == "shipped" else []}
