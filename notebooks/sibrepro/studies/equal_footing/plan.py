"""The runs of notebook 07: the published ones, and those that the notebook's parameters ask for.

A plan maps (method, training tasks, shots) to settings, one for each seed.
"""

from __future__ import annotations

import dataclasses
import itertools

from pydantic import Field

from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.rivals import HEADS
from sibrepro.studies.equal_footing.experiment import FEWER, METHOD_COMPARISON, SIBS, UNTRAINED, MethodSettings, Tasks

SHOTS, SEEDS = (1, 5), (0, 1, 2)
Key = tuple[str, str, int]  # method, training tasks ("" if it learns nothing), shots
# Learning rates of the trained heads at one and at five shots. They were chosen on validation classes, where larger
# ones do worse.
RATES = (1e-3, 1e-4)
OTHER_RATES = {
    "relation": (1e-3, 1e-3),
    "gidaris": (1e-3, 1e-3),
    "qiao": (1e-4, 1e-3),
    "snail": (1e-4, 1e-4),
    "gnn": (1e-3, 1e-3),
    "tadam": (1e-4, 1e-4),
    "metaoptnet": (1e-3, 1e-3),
    "ctm": (1e-4, 1e-4),
    "unem": (0.1, 0.1),  # it learns only 21 numbers
}
HEAD_STEPS = 1000
# The trained systems that the paper's Table 1 compares SIB with, as far as we measure them.
TABLE_1 = (
    "matching-fce",
    "maml",
    "prototypical",
    "relation",
    "gidaris",
    "qiao",
    "snail",
    "gnn",
    "tadam",
    "r2d2",
    "metaoptnet",
    "tpn",
    "leo",
    "ctm",
)
SIB_SETTINGS = {"K": 5, "eta": 1e-2, "steps": 6000}
# Variants of SIB that are trained on the mixture only, with one seed.
VARIANTS = {
    "sib-set-10": {"K": 10, "eta": 1e-2, "steps": 6000, "elsewhere": True},
    "sib-set-wide": {"K": 5, "eta": 1e-2, "steps": 12000, "width": 64},
}
# Features on which no setting was chosen.
CONFIRMATION = {"dataset": "mini-imagenet", "backbone": "conv4-64", "features": "images"}
# The methods that are tested with other numbers of ways and queries too, besides variants of SIB.
ELSEWHERE = ("nearest-centroid", "soft-k-means", "pt-map", "tim", "paddle", "alpha-tim")


@parameters
class EqualFootingNotebook:
    """The parameters of notebook 07: which methods to train and test, and how long."""

    methods: Several[str] = Field(["sib-set", "nearest-centroid", "soft-k-means"], description="keys of the methods")
    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    shots: Several[Count] = Field([1], description="labelled images per class")
    tasks: Tasks = Field("mixture", description="queries of the training tasks")
    K: NonNegative = Field(5, description="synthetic gradient steps")
    eta: Positive = Field(1e-2, description="step size of the inner update")
    width: Count = Field(32, description="of a set-aware xi")
    steps: Count = Field(300, description="meta-training steps")
    lr: Positive = Field(2e-3, description="the highest learning rate")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(300, description="tasks of test classes, of each kind")
    seeds: Count = Field(1, description="trainings of each method")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def runs(self) -> list[MethodSettings]:
        """Return the settings of all runs asked for. Methods that learn nothing have no seed and run once."""
        names = "dataset backbone tasks K eta width steps lr val_episodes test_episodes".split()
        base = MethodSettings(**{name: getattr(self, name) for name in names})
        seeds = range(self.seed, self.seed + self.seeds)
        runs = grid(base, method=self.methods, shots=self.shots, seed=seeds)
        return [p for p in runs if p.method not in UNTRAINED or p.seed == self.seed]


def plan() -> dict[Key, list[MethodSettings]]:
    """Return the settings of the published comparison, on CIFAR-FS with Conv-4-64.

    Methods that learn nothing run once. Heads are trained on the mixture of balanced and unbalanced tasks, with three
    seeds. So are the SIBs, which are also trained on balanced and on unbalanced tasks alone, with one seed.
    """
    runs: dict[Key, list[MethodSettings]] = {}
    for number, shots in enumerate(SHOTS):
        for method in UNTRAINED:
            runs[method, "", shots] = [MethodSettings(method=method, shots=shots, val_episodes=500)]
        for method in HEADS:
            rate = OTHER_RATES.get(method, RATES)[number]
            base = MethodSettings(method=method, shots=shots, lr=rate, steps=HEAD_STEPS)
            runs[method, "mixture", shots] = grid(base, seed=SEEDS)
        for method in SIBS:
            if method in VARIANTS:
                runs[method, "mixture", shots] = [MethodSettings(method=method, shots=shots, **VARIANTS[method])]
                continue
            base = MethodSettings(method=method, shots=shots, **SIB_SETTINGS)
            for tasks in ("balanced", "dirichlet2"):
                runs[method, tasks, shots] = [dataclasses.replace(base, tasks=tasks)]
            runs[method, "mixture", shots] = grid(base, seed=SEEDS)
    return runs


def elsewhere() -> dict[Key, list[MethodSettings]]:
    """Return the settings of runs that are also tested with other numbers of ways and queries.

    These are variants of the best SIB, and the best methods that learn nothing. They show whether a SIB still works on
    tasks that differ from those of its training.
    """
    runs = {key: several for key, several in plan().items() if all(p.elsewhere for p in several)}
    for method, shots in itertools.product(ELSEWHERE, SHOTS):
        base = MethodSettings(method=method, shots=shots, val_episodes=500, test_episodes=FEWER, elsewhere=True)
        runs[method, "", shots] = [base]
    return runs


def confirmation() -> dict[Key, list[MethodSettings]]:
    """Return the settings of runs on features that were used for no choice of settings.

    Which SIB is best was decided on the features of the comparison, so its lead there may be luck. Here the set-aware
    SIB and all methods that learn nothing meet on other features, with the settings of the comparison.
    """
    runs: dict[Key, list[MethodSettings]] = {}
    for (method, tasks, shots), several in plan().items():
        if method in UNTRAINED or (method, tasks) == ("sib-set", "mixture"):
            runs[method, tasks, shots] = [dataclasses.replace(p, **CONFIRMATION) for p in several]
    return runs


def published(planned: dict[Key, list[MethodSettings]] | None = None) -> dict[Key, list[Record]]:
    """Return the runs of a plan that are published.

    Args:
        planned: the plan, by default that of the comparison.

    Returns:
        The runs by the plan's keys. A key without any published run is left out.
    """
    return facts(METHOD_COMPARISON, planned or plan())


def declared() -> dict[Experiment, list[MethodSettings]]:
    """Return every run of this study that is, or is to be, published. Runs in two plans are listed twice."""
    return {METHOD_COMPARISON: flat(plan()) + flat(elsewhere()) + flat(confirmation())}


def asked(p: EqualFootingNotebook) -> dict[Experiment, list[MethodSettings]]:
    """Return the runs that the notebook's parameters ask for."""
    return {METHOD_COMPARISON: p.runs()}
