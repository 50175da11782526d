"""The runs of notebook 03: those that its parameters ask for, and the published ones behind Table 1 and its study."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore import datasets
from sibcore.baselines import BASELINES
from sibrepro.facts import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.compression import compression
from sibrepro.few_shot.experiment import together
from sibrepro.few_shot.jpeg import jpeg
from sibrepro.few_shot.settings import COMPRESSION, FEW_SHOT, JPEG, RIVAL, TEST_EPISODES, UNBALANCED, FewShot, Rival
from sibrepro.few_shot.unbalanced import ALPHA
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters
from sibrepro.statistics import Score, over_seeds, paired, right

SHOTS, STEPS, SEEDS = (1, 5), (0, 1, 3, 5), (0, 1, 2)
SHORT = 5  # epochs of a pretraining that leaves a weaker network than the paper's

# One thing changed in SIB with K = 3 on one shot; one seed each.
VARIANTS: dict[str, dict[str, Any]] = {
    "normalise running": {"normalise": "running"},
    "normalise none": {"normalise": "none"},
    "equivariant ξ": {"equivariant": True},
    f"alpha {ALPHA}": {"alpha": ALPHA},
    "reduction mean": {"reduction": "mean"},
    "optimiser paper": {"optimiser": "paper"},
    "fidelity paper": {"fidelity": "paper"},
}
# Likewise, of what only images can give.
IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "views 4": {"features": "images", "views": 4},
    f"epochs {SHORT}": {"features": "images", "epochs": SHORT},
}
WEAK_START = f"epochs {SHORT}"  # a variant that is trained with K = 0 too, to have its own gain
REASONS = ("reduction mean", "optimiser paper", "normalise running", "normalise none", "views 4", WEAK_START)


@parameters
class FewShotNotebook:
    """Notebook 03."""

    datasets: Annotated[list[str], one_or_several] = Field(
        ["cifar-fs"], min_length=1, description="names of image sets; figures show the first"
    )
    backbones: Annotated[list[str], one_or_several] = Field(
        ["conv4-64"], min_length=1, description="feature networks; figures show the first"
    )
    features: Literal["images", "shipped"] = Field(
        "shipped", description="from images, or the project's where it has them"
    )
    shots: Annotated[list[Count], one_or_several] = Field(
        [1, 5], min_length=1, description="labelled images per class, one experiment each"
    )
    K: Annotated[list[NonNegative], one_or_several] = Field(
        [0, 3], min_length=1, description="synthetic gradient steps, one experiment each"
    )
    eta: Positive = Field(1e-3, description="step size of the inner update")
    steps: Count = Field(1500, description="meta-training steps")
    seeds: Count = Field(1, description="meta-trainings of each experiment")
    val_episodes: Count = Field(200, description="tasks of validation classes")
    test_episodes: Count = Field(1000, description="tasks of test classes")
    baseline_episodes: Count = Field(200, description="tasks of test classes on which baselines are tested")
    studies: bool = Field(False, description="also what takes long: variants of SIB, the effect of compression")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, seed after seed."""
        common = FewShot(**{name: getattr(self, name) for name in ("eta", "steps", "val_episodes", "test_episodes")})
        return [
            dataclasses.replace(common, **origin, shots=shots, K=K, seed=seed)
            for origin in self.origins()
            for seed in range(self.seed, self.seed + self.seeds)
            for shots in self.shots
            for K in self.K
        ]

    def variants(self) -> list[FewShot]:
        """One seed of what the study of balance and the search for reasons compare."""
        return variants(dataclasses.replace(self.experiments()[0], shots=1, K=3), VARIANTS)

    def image_variants(self) -> list[FewShot]:
        return variants(dataclasses.replace(self.experiments()[0], shots=1, K=3), IMAGE_VARIANTS)

    def rivals(self) -> list[Rival]:
        """All methods on the tasks of all experiments."""
        common = Rival(val_episodes=self.val_episodes, test_episodes=self.baseline_episodes)
        return [
            dataclasses.replace(common, **origin, method=name, shots=shots)
            for origin in self.origins()
            for shots in self.shots
            for name in BASELINES
        ]

    def origins(self) -> list[dict[str, str]]:
        """Every image set under every backbone, and where its features come from."""
        return [
            {"dataset": dataset, "backbone": backbone, "features": shipped.where(self.features, dataset, backbone)}
            for dataset in self.datasets
            for backbone in self.backbones
        ]


def variants(base: FewShot, changes: Mapping[str, Mapping[str, Any]]) -> list[FewShot]:
    found = [dataclasses.replace(base, **change) for change in changes.values()]
    weak = [dataclasses.replace(base, **changes[WEAK_START], K=0)] if WEAK_START in changes else []
    return found + weak


def protocol(dataset: str, backbone: str, **changes: Any) -> FewShot:
    """The paper's protocol: 40,000 steps, and as many test tasks as its data set has."""
    features = shipped.where("shipped", dataset, backbone)
    episodes = TEST_EPISODES.get(dataset, 5000)
    return FewShot(dataset=dataset, backbone=backbone, features=features, test_episodes=episodes, **changes)


@dataclasses.dataclass(frozen=True)
class Results:
    """The published runs of one image set and backbone, at the full protocol; a list has one record of each seed.

    sib, inductive: by (shots, K), at eta = 1e-3; variants: by (name in VARIANTS, K), on one shot
    rivals: by (method, shots); unbalanced: by the id of the run that was tried
    """

    sib: Mapping[tuple[int, int], list[Record]]
    inductive: Mapping[tuple[int, int], list[Record]]
    variants: Mapping[tuple[str, int], list[Record]]
    rivals: Mapping[tuple[str, int], Record]
    unbalanced: Mapping[str, Record]

    @property
    def records(self) -> list[Record]:
        return [record for seeds in self.sib.values() for record in seeds]


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> Results:
    """Exactly the runs that are declared here, as far as they are published."""
    base = protocol(dataset, backbone)
    sib = {
        (shots, K): [dataclasses.replace(base, shots=shots, K=K, seed=seed) for seed in SEEDS]
        for shots in SHOTS
        for K in STEPS
    }
    inductive = {(shots, 3): [dataclasses.replace(base, shots=shots, K=3, transductive=False)] for shots in SHOTS}
    changed = {(name, 3): [dataclasses.replace(base, **change)] for name, change in (VARIANTS | IMAGE_VARIANTS).items()}
    changed[WEAK_START, 0] = [dataclasses.replace(base, **IMAGE_VARIANTS[WEAK_START], K=0)]
    tested = {(name, shots): [_rival(base, name, shots)] for shots in SHOTS for name in BASELINES}
    tried = [runs[0] for (shots, _), runs in sib.items() if shots == 1] + [runs[0] for runs in changed.values()]
    return Results(
        sib=_facts(FEW_SHOT, sib),
        inductive=_facts(FEW_SHOT, inductive),
        variants=_facts(FEW_SHOT, changed),
        rivals={key: records[0] for key, records in _facts(RIVAL, tested).items()},
        unbalanced={FEW_SHOT.id(p): record for p in tried if (record := UNBALANCED.published(p))},
    )


def compressions() -> list[Record]:
    """What the compression of features costs: one seed, no steps and three."""
    base = protocol("cifar-fs", "conv4-64")
    settings = [dataclasses.replace(base, shots=shots, K=K) for shots in SHOTS for K in (0, 3)]
    return COMPRESSION.facts(settings)


def jpegs() -> list[Record]:
    """Test images as JPEG: one shot, no steps and three."""
    return JPEG.facts([protocol("cifar-fs", "conv4-64", K=K) for K in (0, 3)])


def with_images(p: FewShotNotebook, trained: Sequence[Record]) -> list[Record]:
    """The runs that need images, for the first image set and backbone; none, with a message, where there are none."""
    try:
        data = datasets.load(p.datasets[0])
    except FileNotFoundError as error:
        print(f"left out for want of images: {error}")
        return []
    first = [r for r in trained if (r.params["dataset"], r.params["backbone"]) == (p.datasets[0], p.backbones[0])]
    first = [r for r in first if r.params["seed"] == p.seed and r.params["K"] in (0, 3)]
    made = [compression(record, data) for record in first if record.params["features"] == "shipped"]
    made += [jpeg(record, data) for record in first if record.params["shots"] == 1]
    return made + together(p.image_variants(), data)


def by_shots_and_K(records: Sequence[Record]) -> dict[tuple[int, int], list[Record]]:
    """Runs of one notebook, one of each seed."""
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record.params["shots"], record.params["K"]), []).append(record)
    return groups


def queries(record: Record) -> int:
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], checkpoint: str = "best") -> Score:
    """The test score of several seeds of one setting."""
    return over_seeds(right(records, f"{checkpoint}/{records[0].params['shots']}shot"), queries(records[0]))


def gain(before: Sequence[Record], after: Sequence[Record], shots: int | None = None) -> Score:
    """How much better `after` answers the same tasks, of `shots`, or of those that `before` was trained with."""
    name = f"best/{shots or before[0].params['shots']}shot"
    return paired(right(before, name), right(after, name), queries(before[0]))


def _rival(base: FewShot, method: str, shots: int) -> Rival:
    same = {name: getattr(base, name) for name in ("dataset", "backbone", "features", "val_episodes", "test_episodes")}
    return Rival(method=method, shots=shots, **same)


def _facts(experiment: Any, plan: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Record]]:
    found = {key: experiment.facts(settings) for key, settings in plan.items()}
    return {key: records for key, records in found.items() if records}
