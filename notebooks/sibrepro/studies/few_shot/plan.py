"""The runs of notebook 03: those that its parameters ask for, and those that are to be published.

The published runs are behind Table 1, and behind the studies of SIB's gain on CIFAR-FS with Conv-4-64.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from sibcore import datasets
from sibrepro.facts import Experiment, Record, facts, flat, single_facts
from sibrepro.meta_training import settings
from sibrepro.meta_training.along_the_steps import DIAGNOSTICS
from sibrepro.meta_training.pretraining import PRETRAIN, RECIPES, Pretraining
from sibrepro.meta_training.runs import AVERAGED, SEEDS, protocol
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT, together
from sibrepro.params import Count, NonNegative, Positive, Several, grid, parameters
from sibrepro.rivals import BASELINES
from sibrepro.statistics import by
from sibrepro.studies.few_shot.compression import COMPRESSION, JPEG, compression, jpeg
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.rivals import RIVAL, Rival

BACKBONES = ("conv4-64", "conv4-128")
# The image sets and backbones of Table 1. The paper has no WRN-16-2: it is a deeper network that a CPU can train.
ORIGINS = [(dataset, backbone) for dataset in ("cifar-fs", "mini-imagenet") for backbone in (*BACKBONES, "wrn-28-10")]
ORIGINS.append(("cifar-fs", "wrn-16-2"))
SHOTS, STEPS = (1, 5), (0, 1, 3, 5)
SHORT = 5  # The epochs of a pretraining that leaves a weaker network than the paper's.

# Variants of SIB with K = 3 on one shot. Each changes one thing, and is trained with one seed.
VARIANTS: dict[str, dict[str, Any]] = {
    "running statistics": {"normalise": "running"},
    "no statistics": {"normalise": "none"},
    "equivariant ξ": {"xi": "equivariant"},
    "trained unbalanced": {"alpha": settings.ALPHA},
    "1/n": {"reduction": "mean"},
    "plain SGD": {"optimiser": "paper"},
    "the paper to the letter": {"fidelity": "paper"},
}
WEAK_START = f"{SHORT} epochs of pretraining"  # This variant is trained with K = 0 too, to have a gain of its own.
# Variants that need images, because the features in the repository do not hold what they change.
IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "4 augmented views": {"features": "images", "views": 4},
    WEAK_START: {"features": "images", "epochs": SHORT},
}
PLAIN = "features as they are"  # The name of the variant without averaged features, where the protocol averages them.
ROTATION = {"rotation": 1.0}  # The network also learns to recognise rotated images (Gidaris et al., 2019).
# The variants that might explain why our SIB is better than the paper's.
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
    """The parameters of notebook 03."""

    datasets: Several[str] = Field(["cifar-fs"], description="names of image sets; figures show the first")
    backbones: Several[str] = Field(["conv4-64"], description="feature networks; figures show the first")
    features: settings.Where = Field("shipped", description="from images, or the project's where it has them")
    shots: Several[Count] = Field([1, 5], description="labelled images per class, one experiment each")
    K: Several[NonNegative] = Field([0, 3], description="synthetic gradient steps, one experiment each")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    xi: settings.XiName = Field("mlp", description="synthetic gradient network, a name in sibcore.xi.XIS")
    steps: Count = Field(1500, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: NonNegative = Field(1000, description="tasks of test classes; 0: as many as the paper has")
    baseline_episodes: NonNegative = Field(200, description="tasks for rivals; 0: as many as the paper has")
    studies: bool = Field(False, description="also what takes long: variants of SIB, the effect of compression")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """Return the settings of all meta-trainings, seed after seed for each image set and backbone."""
        seeds = range(self.seed, self.seed + self.seeds)
        bases = self._bases(self.test_episodes)
        return [p for base in bases for p in grid(base, seed=seeds, shots=self.shots, K=self.K)]

    def shown(self, records: Sequence[Record]) -> dict[tuple[int, int], list[Record]]:
        """Group the runs of the first image set and backbone, which tables and figures show, by (shots, K)."""
        first = {"dataset": self.datasets[0], "backbone": self.backbones[0]}
        return by([record for record in records if first.items() <= record.params.items()], "shots", "K")

    def variants(self) -> list[FewShot]:
        """Return one seed of each variant of SIB that needs no images, and of inductive SIB."""
        base = self._studied()
        return [*flat(_variants(base, VARIANTS)), *grid(base, transductive=[False], shots=SHOTS)]

    def image_variants(self) -> list[FewShot]:
        """Return one seed of each variant of SIB that needs images."""
        return flat(_variants(self._studied(), IMAGE_VARIANTS))

    def rivals(self) -> list[Rival]:
        """Return the settings of all rival methods on the tasks of all experiments."""
        bases = self._bases(self.baseline_episodes)
        tested = [p for base in bases for p in grid(base, shots=self.shots)]
        return [_rival(p, name) for p in tested for name in BASELINES]

    def _bases(self, episodes: int) -> list[FewShot]:
        """Return the settings of every image set under every backbone, with this number of test tasks."""
        common = {name: getattr(self, name) for name in ("eta", "xi", "steps", "val_episodes")}
        origins = itertools.product(self.datasets, self.backbones)
        return [protocol(*origin, features=self.features, test_episodes=episodes, **common) for origin in origins]

    def _studied(self) -> FewShot:
        """Return the settings of which variants are made."""
        return dataclasses.replace(self.experiments()[0], shots=1, K=3)


@dataclasses.dataclass(frozen=True)
class FewShotRuns:
    """The runs of one image set and backbone at the full protocol: settings in a plan, or records of published runs.

    Attributes:
        sib: SIB by (shots, K) at η = 1e-3, a list with one run for each seed.
        inductive: the same for inductive SIB, which takes true gradients on the support set.
        variants: SIB with one thing changed on one shot, by (name of the change, K).
        rivals: the rival methods, by (method, shots).
        unbalanced: the tests on unbalanced queries, by the id of the few-shot run that trained the SIB.
        rotation: as `sib`, with a network that also learned to recognise rotated images.
    """

    sib: Mapping[tuple[int, int], list[Any]]
    inductive: Mapping[tuple[int, int], list[Any]]
    variants: Mapping[tuple[str, int], list[Any]]
    rivals: Mapping[tuple[str, int], Any]
    unbalanced: Mapping[str, Any]
    rotation: Mapping[tuple[int, int], list[Any]] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> list[Any]:
        """The runs of SIB itself, all settings and seeds in one list."""
        return flat(self.sib)

    @property
    def trained(self) -> dict[str, Mapping[Any, list[Any]]]:
        """The fields whose runs are meta-trainings, by name."""
        return {name: getattr(self, name) for name in ("sib", "inductive", "variants", "rotation")}


@functools.cache
def plan(dataset: str, backbone: str) -> FewShotRuns:
    """Return the settings of all runs of one image set and backbone that are, or are to be, published."""
    base = protocol(dataset, backbone, K=3)
    sib = _by_shots_and_K(grid(base, shots=SHOTS, K=STEPS, seed=SEEDS))
    inductive, variants, rotation = {}, {}, {}
    if (dataset, backbone) == ORIGINS[0]:  # Only here SIB is also studied.
        inductive = _by_shots_and_K(grid(base, shots=SHOTS, transductive=[False]))
        variants = _variants(base, VARIANTS | IMAGE_VARIANTS)
        turned = protocol(dataset, backbone, features="images", **ROTATION)
        rotation = _by_shots_and_K(grid(turned, shots=SHOTS, K=(0, 3), seed=SEEDS))
    if (dataset, backbone) in AVERAGED:
        variants = {(PLAIN, p.K): [p] for p in grid(base, averaged=[False], K=(0, 3))}
    tried = [sib[1, K][0] for K in STEPS]
    tried += [settings[0] for (name, _), settings in variants.items() if name in VARIANTS]
    unbalanced = {FEW_SHOT.id(p): p for p in tried}
    rivals = {(name, p.shots): _rival(p, name) for p in grid(base, shots=SHOTS) for name in BASELINES}
    return FewShotRuns(sib, inductive, variants, rivals, unbalanced, rotation)


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> FewShotRuns:
    """Return the records of the planned runs that are published, and no others."""
    planned = plan(dataset, backbone)
    return FewShotRuns(
        **{name: facts(FEW_SHOT, settings) for name, settings in planned.trained.items()},
        rivals=single_facts(RIVAL, planned.rivals),
        unbalanced=single_facts(UNBALANCED, planned.unbalanced),
    )


def declared() -> dict[Experiment, list[Any]]:
    """Return the settings of every run of this study that is, or is to be, published, by experiment."""
    plans = [plan(*origin) for origin in ORIGINS]
    first = protocol(*ORIGINS[0], K=3)
    return {
        FEW_SHOT: [p for one in plans for group in one.trained.values() for p in flat(group)],
        RIVAL: [p for one in plans for p in one.rivals.values()],
        UNBALANCED: [p for one in plans for p in one.unbalanced.values()],
        DIAGNOSTICS: [first],
        COMPRESSION: grid(first, shots=SHOTS, K=(0, 3)),
        JPEG: grid(first, K=(0, 3)),
        PRETRAIN: PRETRAININGS,
    }


def asked(p: FewShotNotebook) -> dict[Experiment, list[Any]]:
    """Return the runs that the notebook's parameters ask for, except those that need images."""
    trained = p.experiments()
    one_shot = [one for one in trained if (one.shots, one.seed) == (1, p.seed)]
    return {FEW_SHOT: trained, RIVAL: p.rivals(), UNBALANCED: one_shot}


def compressed(experiment: Experiment) -> list[Record]:
    """Return the published runs of `COMPRESSION` (one and five shots) or `JPEG` (one shot), with K = 0 and K = 3."""
    return experiment.facts(declared()[experiment])


def with_images(p: FewShotNotebook, trained: Sequence[Record]) -> list[Record]:
    """Return the runs that need images, for the notebook's first image set and backbone.

    Without images on this machine, print a message and return no run.

    Args:
        p: the notebook's parameters.
        trained: the notebook's meta-trainings, some of which are tested on exact features and on JPEG.
    """
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


def _by_shots_and_K(settings: Sequence[FewShot]) -> dict[tuple[int, int], list[FewShot]]:
    """Group settings by (shots, K)."""
    found: dict[tuple[int, int], list[FewShot]] = {}
    for p in settings:
        found.setdefault((p.shots, p.K), []).append(p)
    return found


def _variants(base: FewShot, changes: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, int], list[FewShot]]:
    """Return `base` with one thing changed, by (name of the change, K)."""
    found = {}
    for name, change in changes.items():
        for K in (base.K, 0) if name == WEAK_START else (base.K,):
            found[name, K] = [dataclasses.replace(base, K=K, **change)]
    return found


def _rival(p: FewShot, method: str) -> Rival:
    """Return the settings of a rival method on the features and tasks of a few-shot run."""
    shared = {field.name for field in dataclasses.fields(Rival)} - {"method"}
    return Rival(method=method, **{name: getattr(p, name) for name in shared})
