"""The runs of notebook 07: those that its parameters ask for, and the published ones."""

from __future__ import annotations

import dataclasses
import itertools

from pydantic import Field

from sibrepro.facts import Experiment, Record, facts, flat
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.rivals import HEADS
from sibrepro.studies.equal_footing.experiment import CONTENDER, FEWER, SIBS, UNTRAINED, Contender, Tasks

SHOTS, SEEDS = (1, 5), (0, 1, 2)
Key = tuple[str, str, int]  # method, tasks of its training, shots
# The rate at which heads learn on one and on five shots, chosen on validation classes; larger ones lose there.
RATES = {1: 1e-3, 5: 1e-4}
OF_HEADS = {
    "relation": {1: 1e-3, 5: 1e-3},
    "gidaris": {1: 1e-3, 5: 1e-3},
    "qiao": {1: 1e-4, 5: 1e-3},
    "snail": {1: 1e-4, 5: 1e-4},
    "gnn": {1: 1e-3, 5: 1e-3},
    "tadam": {1: 1e-4, 5: 1e-4},
    "metaoptnet": {1: 1e-3, 5: 1e-3},
    "ctm": {1: 1e-4, 5: 1e-4},
    "unem": {1: 0.1, 5: 0.1},  # it learns 21 numbers
}
HEAD_STEPS = 1000
TABLE_1 = (  # the trained systems that the paper's Table 1 compares SIB with, as far as they are measured here
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
LADDER = {"K": 5, "eta": 1e-2, "steps": 6000}
LADDERS = {  # of what is tried on the mixture alone, with one seed
    "sib-set-10": {"K": 10, "eta": 1e-2, "steps": 6000, "elsewhere": True},
    "sib-set-wide": {"K": 5, "eta": 1e-2, "steps": 12000, "width": 64},
}
NEVER_LOOKED_AT = {"dataset": "mini-imagenet", "backbone": "conv4-64", "features": "images"}  # for any choice
ELSEWHERE = ("nearest-centroid", "soft-k-means", "pt-map", "tim", "paddle", "alpha-tim")  # beside the best SIB


@parameters
class EqualFootingNotebook:
    """Notebook 07."""

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

    def contenders(self) -> list[Contender]:
        """All methods; one that learns nothing has one seed."""
        names = "dataset backbone tasks K eta width steps lr val_episodes test_episodes".split()
        base = Contender(**{name: getattr(self, name) for name in names})
        seeds = range(self.seed, self.seed + self.seeds)
        many = grid(base, method=self.methods, shots=self.shots, seed=seeds)
        return [p for p in many if p.method not in UNTRAINED or p.seed == self.seed]


def plan() -> dict[Key, list[Contender]]:
    """The published comparison, on CIFAR-FS with Conv-4-64."""
    found: dict[Key, list[Contender]] = {}
    for shots in SHOTS:
        for method in UNTRAINED:
            found[method, "", shots] = [Contender(method=method, shots=shots, val_episodes=500)]
        for method in HEADS:
            rate = OF_HEADS.get(method, RATES)[shots]
            base = Contender(method=method, shots=shots, lr=rate, steps=HEAD_STEPS)
            found[method, "mixture", shots] = grid(base, seed=SEEDS)
        for method in SIBS:
            for tasks in ("mixture",) if method in LADDERS else ("balanced", "dirichlet2", "mixture"):
                seeds = SEEDS if tasks == "mixture" and method not in LADDERS else SEEDS[:1]
                base = Contender(method=method, shots=shots, tasks=tasks, **LADDERS.get(method, LADDER))
                found[method, tasks, shots] = grid(base, seed=seeds)
    return found


def elsewhere() -> dict[Key, list[Contender]]:
    """The best SIB and the best of the methods that learn nothing, on tasks of other shapes."""
    found = {key: several for key, several in plan().items() if all(p.elsewhere for p in several)}
    for method, shots in itertools.product(ELSEWHERE, SHOTS):
        base = Contender(method=method, shots=shots, val_episodes=500, test_episodes=FEWER, elsewhere=True)
        found[method, "", shots] = [base]
    return found


def confirmation() -> dict[Key, list[Contender]]:
    """The set-aware SIB and all that learns nothing, with the settings chosen, on features used for no choice."""
    ours = ("sib-set", "mixture")
    chosen = {key: several for key, several in plan().items() if key[0] in UNTRAINED or key[:2] == ours}
    return {key: [dataclasses.replace(p, **NEVER_LOOKED_AT) for p in several] for key, several in chosen.items()}


def published(planned: dict[Key, list[Contender]] | None = None) -> dict[Key, list[Record]]:
    """Exactly the runs of a plan, by default of the comparison, as far as they are published."""
    return facts(CONTENDER, planned or plan())


def declared() -> dict[Experiment, list[Contender]]:
    """Every run of this study that is, or is to be, published."""
    plans = (plan(), elsewhere(), confirmation())
    return {CONTENDER: [p for planned in plans for p in flat(planned)]}


def asked(p: EqualFootingNotebook) -> dict[Experiment, list[Contender]]:
    """Return the runs that the notebook's parameters ask for."""
    return {CONTENDER: p.contenders()}
