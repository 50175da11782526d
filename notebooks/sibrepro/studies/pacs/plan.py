"""The runs of notebook 05: those that its parameters ask for, and those that are published.

Adaptation is studied in two ways. In two stages (`FINE_TUNED`, then `SECOND_STAGE`), a network is fine-tuned on the
sources first, and methods adapt to the target on its features. In one stage (`ADAPTATION`), an earlier study, lambda,
xi and the rotation head are trained together on ImageNet's features.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore.datasets import pacs
from sibcore.datasets.pacs import DOMAINS, Domain
from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.meta_training.settings import XiName
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.studies.pacs import banks
from sibrepro.studies.pacs.banks import STATISTICS
from sibrepro.studies.pacs.experiment import ADAPTATION, Adaptation, adapt, inputs
from sibrepro.studies.pacs.first_stage import FINE_TUNED, FineTuned, first_stage
from sibrepro.studies.pacs.rotations import rotations
from sibrepro.studies.pacs.second_stage import ETAS, RIVALS, SECOND_STAGE, TASKS, SecondStage, second_stage

Key = tuple[str, int]  # method and K
Scores = dict[Key, dict[str, list[Record]]]  # by method and K, then by target: one run of each seed

# In one stage, by kind of features: the settings that are published, and the number of seeds by method and K.
_UPPER = {"features": "upper", "size": 128, "steps": 100, "batch": 16, "lr": 3e-4, "alpha": 1.0, "turns": "one"}
_SHORT = {"steps": 300, "lr": 2e-3, "alpha": 1.0}
_PLAIN, _SIB, _SIB_ROT, _SIB_ROT_3 = ("source-only", 0), ("SIB", 3), ("SIB-Rot", 0), ("SIB-Rot", 3)
ONE_STAGE = {
    "upper": (_UPPER, {_PLAIN: 2, ("Rot", 0): 2, _SIB_ROT: 1, _SIB_ROT_3: 1}),
    "frozen": (_SHORT, {_PLAIN: 10, _SIB: 3, _SIB_ROT: 10, ("SIB-Rot", 1): 3, _SIB_ROT_3: 10, ("SIB-Rot", 5): 3}),
    "frozen, α = 0": (_SHORT | {"alpha": 0.0}, {_PLAIN: 3, _SIB_ROT: 3, _SIB_ROT_3: 3}),
    "shipped": (_SHORT | {"features": "shipped"}, {_PLAIN: 3, _SIB: 3, _SIB_ROT: 3, _SIB_ROT_3: 3}),
}


# Stage 1. SEARCH compares learning rates, sizes and shares of grey images in 80 steps. The networks of TWO_SOURCES
# leave a third source out, on which xi can be trained and choices can be made. Those of THREE_SOURCES learn from all
# sources of a target, without and with rotations.
SEARCH = [
    FineTuned(without=without, steps=80, **changes)
    for without in ("art_painting+cartoon", "photo+sketch")
    for changes in ({}, {"peak_lr": 5e-4}, {"size": 64}, {"size": 128}, {"grey": 0.3})
]
TWO_SOURCES = [FineTuned(without="+".join(two)) for two in itertools.combinations(DOMAINS, 2)]
FIRST_SEEDS, ROTATED = (0, 1), 6  # seeds of stage 1; rotated images of each domain in a step
THREE_SOURCES = grid(FineTuned(), seed=FIRST_SEEDS, without=DOMAINS, turned=(0, ROTATED))
IMAGENET_SIZE = 160  # pixels at which the network that was not fine-tuned sees the images

# Stage 2. TWO_STAGES are the paper's methods by method and K: the settings in which they differ from the default.
PER_FIRST = 3  # seeds of stage 2 for each network of stage 1
TWO_STAGES = {
    ("source-only", 0): {"network": "source-only", "K": 0},
    ("Rot", 0): {"K": 0},
    **{("SIB", K): {"K": K, "tasks": "", "other_batches": K == 3} for K in (1, 3, 5)},
    ("SIB-Rot", 0): {"K": 0, "start": "turned"},
    **{("SIB-Rot", K): {"K": K, "tasks": "", "start": "turned"} for K in (1, 3, 5)},
}
# SIB with K = 3 and something changed: the network of stage 1, xi, the tasks it is trained on, or the minibatches.
ABLATIONS = {
    "set-aware ξ, source-only network": {"network": "source-only"},
    "equivariant ξ": {"xi": "equivariant"},
    "paper's ξ": {"xi": "mlp"},
    "set-aware ξ, trained on unseen domains": {},
    "set-aware ξ, trained on the sources": {"tasks": "sources"},
    "paper's ξ, trained on the sources": {"xi": "mlp", "tasks": "sources"},
    "set-aware ξ, minibatches of 256": {"images": 256, "test_batch": 256},
}
# The classifier of stage 1 on several variants of its features, as `banks.FeatureVariant` spells them.
_VARIANTS = ["sources/sources/0", *(f"{statistics}/own/{weight}" for weight in (0, 2) for statistics in STATISTICS)]
FEATURE_ABLATION = {
    f"{network}, {variant}": {"network": network, "K": 0, "look": variant}
    for network in ("source-only", "Rot")
    for variant in _VARIANTS
}
# Step sizes of eq. (ssup).
ROTATION_RATES = {f"rate {rate:g}": {"K": 0, "start": "turned", "turn_rate": rate} for rate in (0.1, 1.0, 10.0, 100.0)}
# Leave one source out, and test on it instead of the target: these runs choose the step size and the kind of tasks.
VALIDATION = [
    p
    for target, held in itertools.permutations(DOMAINS, 2)
    for p in grid(SecondStage(target=target, held=held), eta=ETAS, tasks=TASKS)
]
OTHERS = ABLATIONS | FEATURE_ABLATION | ROTATION_RATES | {name: {"method": name} for name in RIVALS}


@parameters
class StagesNotebook:
    """The parameters of notebook 05."""

    networks: Literal["shipped", "images"] = Field(
        "shipped", description="stage 1: the networks that come with the project, or new ones, trained on images"
    )
    backbone: str = Field("efficientnet-lite0", description="stage 1 from images: feature network")
    size: Count = Field(96, description="stage 1 from images: width of the images in pixels")
    first_steps: Count = Field(300, description="stage 1 from images: training steps")
    first_batch: Count = Field(24, description="stage 1 from images: images of each source in a step")
    peak_lr: Positive = Field(1e-3, description="stage 1 from images: highest learning rate")
    targets: Several[Domain] = Field([*DOMAINS], description="domains that are the target in turn")
    K: Several[NonNegative] = Field([0, 3], description="synthetic gradient steps")
    xi: XiName = Field("set", description="synthetic gradient network, a name in sibcore.xi.XIS")
    tasks: Literal["shift", "sources", ""] = Field(
        "shift", description="tasks on which xi is trained; empty: chosen on the sources"
    )
    eta: Annotated[float, Field(ge=0)] = Field(
        0.3, description="step size of the inner update, for means over a minibatch; 0: chosen on the sources"
    )
    steps: Count = Field(200, description="training steps of xi")
    seeds: Count = Field(1, description="trainings of each setting")
    jointly: bool = Field(False, description="whether to train all of f and xi together, too, in one stage from images")

    def networks_of(self) -> list[FineTuned]:
        """Return stage 1 from images: networks of two sources, and of three without and with rotations."""
        same = {"backbone": self.backbone, "size": self.size, "steps": self.first_steps}
        same |= {"batch": self.first_batch, "peak_lr": self.peak_lr}
        return [dataclasses.replace(p, **same) for p in (*TWO_SOURCES, *THREE_SOURCES)]

    def experiments(self) -> list[SecondStage]:
        """Return stage 2: source-only, and Rot (K = 0) or SIB with each K."""
        base = SecondStage(backbone=self.backbone, xi=self.xi, tasks=self.tasks, eta=self.eta, steps=self.steps)
        several = [dataclasses.replace(base, network="source-only", K=0), *grid(base, K=self.K)]
        return self._over_targets(several)

    def one_stage(self) -> list[Adaptation]:
        """Return the runs in one stage. With the profile "paper" they are 60 epochs, as in the paper."""
        if not self.jointly:
            return []
        same = {"backbone": self.backbone, "size": self.size, "steps": self.first_steps}
        same |= {"features": "all", "turns": "one", "alpha": 1.0}
        kinds = [("source-only", 0), ("Rot", 0), ("SIB", 3), *(("SIB-Rot", K) for K in self.K)]
        return self._over_targets([Adaptation(method=method, K=K, **same) for method, K in kinds])

    def _over_targets(self, several: list[Any]) -> list[Any]:
        """Return each of these settings with every target and every seed."""
        return [p for one in several for p in grid(one, target=self.targets, seed=range(self.seeds))]


def run(p: StagesNotebook) -> list[Record]:
    """Return the runs that the notebook's parameters ask for, on the project's networks or from images."""
    bank = None
    if p.networks == "images":
        data = pacs.load(size=p.size)
        plain = rotations(pacs.load(size=IMAGENET_SIZE), p.backbone)
        bank = banks.assemble([first_stage(one, data) for one in p.networks_of()], data, plain)
    jointly = p.one_stage()
    images = inputs(jointly[0]) if jointly else None  # shared by all of them
    return [*(second_stage(one, bank) for one in p.experiments()), *(adapt(one, images) for one in jointly)]


def stages(changes: Mapping[str, Any], count: int = PER_FIRST) -> dict[str, list[SecondStage]]:
    """Return settings of stage 2 by target.

    Args:
        changes: the settings that are not default.
        count: number of seeds for each network of stage 1.
    """
    seeds = [{"first_seed": first, "seed": first * PER_FIRST + i} for first in FIRST_SEEDS for i in range(count)]
    return {target: [SecondStage(target=target, **seed, **changes) for seed in seeds] for target in DOMAINS}


def other_stages(name: str) -> dict[str, list[SecondStage]]:
    """Return settings of stage 2 by target, for one of `OTHERS`. Only ablations, being trained, have several seeds."""
    return stages(OTHERS[name], PER_FIRST if name in ABLATIONS else 1)


def others(names: Mapping[str, Any]) -> dict[str, dict[str, list[Record]]]:
    """Return the published runs of some of `OTHERS`, by name and target."""
    found = {name: facts(SECOND_STAGE, other_stages(name)) for name in names}
    return {name: by_target for name, by_target in found.items() if by_target}


def plan(name: str) -> dict[Key, dict[str, list[Adaptation]]]:
    """Return the settings of one kind of features in `ONE_STAGE`, by method and K, then by target."""
    settings, seeds = ONE_STAGE[name]
    found = {}
    for (method, K), count in seeds.items():
        base = Adaptation(method=method, K=K, **settings)
        found[method, K] = {target: grid(base, target=[target], seed=range(count)) for target in DOMAINS}
    return found


def published() -> dict[str, Scores]:
    """Return the published runs by kind of features.

    "fine-tuned" are the runs in two stages, the others those in one, such as "frozen". In "frozen, α = 0" the class
    proportions of training tasks are not varied.
    """
    found = {"fine-tuned": {key: facts(SECOND_STAGE, stages(changes)) for key, changes in TWO_STAGES.items()}}
    for name in ONE_STAGE:
        found[name] = {key: facts(ADAPTATION, by_target) for key, by_target in plan(name).items()}
    return found


def declared() -> dict[Experiment, list[Any]]:
    """Return the settings of every run of this study that is published, by experiment."""
    second = records({key: stages(changes) for key, changes in TWO_STAGES.items()})
    second += records({name: other_stages(name) for name in OTHERS})
    return {
        ADAPTATION: [p for name in ONE_STAGE for p in records(plan(name))],
        FINE_TUNED: [*SEARCH, *TWO_SOURCES, *THREE_SOURCES],
        SECOND_STAGE: [*VALIDATION, *second],
    }


def records(scores: Mapping[Any, Mapping[str, list[Any]]]) -> list[Any]:
    """Return all runs (or settings) by method and target as one list."""
    return [record for by_target in scores.values() for record in flat(by_target)]


def seeds(scores: Scores, key: Key) -> int:
    """Return how many trainings of a method there are for every target."""
    return min(len(scores.get(key, {}).get(target, [])) for target in DOMAINS)


def name_of(key: Key) -> str:
    """Return the name of a method for tables, with its K if it takes steps."""
    method, K = key
    return f"{method}, K = {K}" if method in ("SIB", "SIB-Rot") else method


def asked(p: StagesNotebook) -> dict[Experiment, list[Any]]:
    """Return the runs that the notebook's parameters ask for on the networks that come with the project."""
    return {SECOND_STAGE: p.experiments() if p.networks == "shipped" else []}
