"""The runs of notebook 03: those that its parameters ask for, and the published ones behind Table 1 and its study."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from sibcore import datasets
from sibrepro.facts import Experiment, Record, facts, flat, single_facts
from sibrepro.meta_training import settings
from sibrepro.meta_training.along_the_steps import INSIDE
from sibrepro.meta_training.pretraining import PRETRAIN, RECIPES, Pretraining
from sibrepro.meta_training.runs import AVERAGED, SEEDS, protocol
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT, together
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.rivals import BASELINES
from sibrepro.studies.few_shot.compression import COMPRESSION, JPEG, compression, jpeg
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.rivals import RIVAL, Rival

BACKBONES = ("conv4-64", "conv4-128")
ORIGINS = [(dataset, backbone) for dataset in ("cifar-fs", "mini-imagenet") for backbone in (*BACKBONES, "wrn-28-10")]
ORIGINS.append(("cifar-fs", "wrn-16-2"))  # the paper has none: a deeper network that a CPU can bear
SHOTS, STEPS = (1, 5), (0, 1, 3, 5)
SHORT = 5  # epochs of a pretraining that leaves a weaker network than the paper's

# One thing changed in SIB with K = 3 on one shot; one seed each.
VARIANTS: dict[str, dict[str, Any]] = {
    "running statistics": {"normalise": "running"},
    "no statistics": {"normalise": "none"},
    "equivariant ξ": {"equivariant": True},
    "trained unbalanced": {"alpha": settings.ALPHA},
    "1/n": {"reduction": "mean"},
    "plain SGD": {"optimiser": "paper"},
    "the paper to the letter": {"fidelity": "paper"},
}
WEAK_START = f"{SHORT} epochs of pretraining"  # a variant that is trained with K = 0 too, to have its own gain
# Likewise, of what only images can give.
IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "4 augmented views": {"features": "images", "views": 4},
    WEAK_START: {"features": "images", "epochs": SHORT},
}
TRAINED = ("sib", "inductive", "variants", "rotation")  # the fields of `FewShotRuns` that are meta-trainings
PLAIN = "features as they are"  # where they are averaged, with K = 0 too
ROTATION = {"rotation": 1.0}  # f learns to tell turned images apart, too (Gidaris et al., 2019)
REASONS = ("1/n", "plain SGD", "running statistics", "no statistics", "4 augmented views", WEAK_START)
PRETRAININGS = [
    Pretraining(backbone="conv4-64"),
    Pretraining(backbone="conv4-64", epochs=SHORT),
    Pretraining(backbone="conv4-128", epochs=10),
    Pretraining(backbone="conv4-64", **ROTATION),
    *(Pretraining(dataset=dataset, backbone=backbone, **changes) for (dataset, backbone), changes in RECIPES.items()),
]


@parameters
class FewShotNotebook:
    """Notebook 03."""

    datasets: Several[str] = Field(["cifar-fs"], description="names of image sets; figures show the first")
    backbones: Several[str] = Field(["conv4-64"], description="feature networks; figures show the first")
    features: settings.Where = Field("shipped", description="from images, or the project's where it has them")
    shots: Several[Count] = Field([1, 5], description="labelled images per class, one experiment each")
    K: Several[NonNegative] = Field([0, 3], description="synthetic gradient steps, one experiment each")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(1500, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: NonNegative = Field(1000, description="tasks of test classes; 0: as many as the paper has")
    baseline_episodes: NonNegative = Field(200, description="likewise, on which rivals are tested")
    studies: bool = Field(False, description="also what takes long: variants of SIB, the effect of compression")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, seed after seed."""
        seeds = range(self.seed, self.seed + self.seeds)
        bases = self._bases(self.test_episodes)
        return [p for base in bases for p in grid(base, seed=seeds, shots=self.shots, K=self.K)]

    def variants(self) -> list[FewShot]:
        """One seed of what the study of balance and the search for reasons compare."""
        base = dataclasses.replace(self.experiments()[0], shots=1, K=3)
        return [*_changed(base, VARIANTS).values(), *grid(base, transductive=[False], shots=SHOTS)]

    def image_variants(self) -> list[FewShot]:
        return [*_changed(dataclasses.replace(self.experiments()[0], shots=1, K=3), IMAGE_VARIANTS).values()]

    def rivals(self) -> list[Rival]:
        """All methods on the tasks of all experiments."""
        bases = self._bases(self.baseline_episodes)
        return [_rival(base, name, shots) for base in bases for shots in self.shots for name in BASELINES]

    def _bases(self, episodes: int) -> list[FewShot]:
        """Every image set under every backbone."""
        common = {"eta": self.eta, "steps": self.steps, "val_episodes": self.val_episodes}
        origins = [(dataset, backbone) for dataset in self.datasets for backbone in self.backbones]
        return [protocol(*origin, features=self.features, test_episodes=episodes, **common) for origin in origins]


@dataclasses.dataclass(frozen=True)
class FewShotRuns:
    """The runs of one image set and backbone at the full protocol: settings in a plan, records of what is published.

    sib, inductive, rotation (f learned it, too): by (shots, K), at eta = 1e-3, one of each seed
    variants: by (name in VARIANTS, K), on one shot
    rivals: by (method, shots); unbalanced: what is tried on unbalanced queries, by the id of the training
    """

    sib: Mapping[tuple[int, int], list[Any]]
    inductive: Mapping[tuple[int, int], list[Any]]
    variants: Mapping[tuple[str, int], list[Any]]
    rivals: Mapping[tuple[str, int], Any]
    unbalanced: Mapping[str, Any]
    rotation: Mapping[tuple[int, int], list[Any]] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> list[Any]:
        return flat(self.sib)


@functools.cache
def plan(dataset: str, backbone: str) -> FewShotRuns:
    base = protocol(dataset, backbone, K=3)
    sib = {(shots, K): grid(base, shots=[shots], K=[K], seed=SEEDS) for shots in SHOTS for K in STEPS}
    inductive, rotation, changed = {}, {}, {}
    if (dataset, backbone) == ORIGINS[0]:  # what is studied, rather than measured alone
        inductive = {(p.shots, p.K): [p] for p in grid(base, transductive=[False], shots=SHOTS)}
        turned = protocol(dataset, backbone, features="images", **ROTATION)
        rotation = {(shots, K): grid(turned, shots=[shots], K=[K], seed=SEEDS) for shots in SHOTS for K in (0, base.K)}
        changed = {key: [p] for key, p in _changed(base, VARIANTS | IMAGE_VARIANTS).items()}
    if (dataset, backbone) in AVERAGED:
        changed = {(PLAIN, K): [dataclasses.replace(base, K=K, averaged=False)] for K in (0, base.K)}
    tried = [sib[1, K][0] for K in STEPS] + [p for (name, _), (p,) in changed.items() if name in VARIANTS]
    rivals = {(name, shots): _rival(base, name, shots) for shots in SHOTS for name in BASELINES}
    return FewShotRuns(sib, inductive, changed, rivals, {FEW_SHOT.id(p): p for p in tried}, rotation)


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> FewShotRuns:
    """Return exactly the runs that are planned, as far as they are published."""
    planned = plan(dataset, backbone)
    return FewShotRuns(
        **{name: facts(FEW_SHOT, getattr(planned, name)) for name in TRAINED},
        rivals=single_facts(RIVAL, planned.rivals),
        unbalanced=single_facts(UNBALANCED, planned.unbalanced),
    )


def declared() -> dict[Experiment, list[Any]]:
    """Every run of this study that is, or is to be, published."""
    plans, first = [plan(*origin) for origin in ORIGINS], protocol(*ORIGINS[0], K=3)
    return {
        FEW_SHOT: [p for one in plans for name in TRAINED for p in flat(getattr(one, name))],
        RIVAL: [p for one in plans for p in one.rivals.values()],
        UNBALANCED: [p for one in plans for p in one.unbalanced.values()],
        INSIDE: [first],
        COMPRESSION: grid(first, shots=SHOTS, K=(0, 3)),
        JPEG: grid(first, K=(0, 3)),
        PRETRAIN: PRETRAININGS,
    }


def looked(experiment: Experiment) -> list[Record]:
    """The published runs of `COMPRESSION`, on one and five shots, or of `JPEG`, on one: no steps and three."""
    return experiment.facts(declared()[experiment])


def with_images(p: FewShotNotebook, trained: Sequence[Record]) -> list[Record]:
    """The runs that need images, for the first image set and backbone; none, with a message, where there are none."""
    try:
        data = datasets.load(p.datasets[0])
    except FileNotFoundError as error:
        print(f"left out for want of images: {error}")
        return []
    wanted = {"dataset": p.datasets[0], "backbone": p.backbones[0], "seed": p.seed}
    first = [r for r in trained if wanted.items() <= r.params.items() and r.params["K"] in (0, 3)]
    made = [compression(record, data) for record in first if record.params["features"] == "shipped"]
    made += [jpeg(record, data) for record in first if record.params["shots"] == 1]
    return made + together(p.image_variants(), data)


def _changed(base: FewShot, changes: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, int], FewShot]:
    """One thing changed in `base`, by its name and K."""
    weak = [(WEAK_START, 0)] if WEAK_START in changes else []
    keys = [*((name, base.K) for name in changes), *weak]
    return {(name, K): dataclasses.replace(base, K=K, **changes[name]) for name, K in keys}


def _rival(base: FewShot, method: str, shots: int) -> Rival:
    same = {field.name: getattr(base, field.name) for field in dataclasses.fields(Rival) if hasattr(base, field.name)}
    return Rival(method=method, **same | {"shots": shots})


def asked(p: FewShotNotebook) -> dict[Experiment, list[Any]]:
    """Return the runs that the notebook's parameters ask for, as far as they need no images."""
    trained = p.experiments()
    one_shot = [one for one in trained if (one.shots, one.seed) == (1, p.seed)]
    return {FEW_SHOT: trained, RIVAL: p.rivals(), UNBALANCED: one_shot}
