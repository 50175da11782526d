"""The runs of notebook 03: those that its parameters ask for, and the published ones behind Table 1 and its study."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from sibcore import datasets
from sibcore.baselines import BASELINES
from sibrepro.facts import Experiment, Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.compression import compression
from sibrepro.few_shot.experiment import RECIPES, together
from sibrepro.few_shot.jpeg import jpeg
from sibrepro.few_shot.settings import (
    COMPRESSION,
    FEW_SHOT,
    INSIDE,
    JPEG,
    PRETRAIN,
    RIVAL,
    TEST_EPISODES,
    UNBALANCED,
    FewShot,
    Pretraining,
    Rival,
)
from sibrepro.few_shot.unbalanced import ALPHA
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters
from sibrepro.statistics import Score, over_seeds, paired, right

BACKBONES = ("conv4-64", "conv4-128")
ORIGINS = [(dataset, backbone) for dataset in ("cifar-fs", "mini-imagenet") for backbone in (*BACKBONES, "wrn-28-10")]
SHOTS, STEPS, SEEDS = (1, 5), (0, 1, 3, 5), (0, 1, 2)
SHORT = 5  # epochs of a pretraining that leaves a weaker network than the paper's

# One thing changed in SIB with K = 3 on one shot; one seed each.
VARIANTS: dict[str, dict[str, Any]] = {
    "running statistics": {"normalise": "running"},
    "no statistics": {"normalise": "none"},
    "equivariant ξ": {"equivariant": True},
    "trained unbalanced": {"alpha": ALPHA},
    "1/n": {"reduction": "mean"},
    "plain SGD": {"optimiser": "paper"},
    "the paper to the letter": {"fidelity": "paper"},
}
# Likewise, of what only images can give.
IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "4 augmented views": {"features": "images", "views": 4},
    f"{SHORT} epochs of pretraining": {"features": "images", "epochs": SHORT},
}
WEAK_START = f"{SHORT} epochs of pretraining"  # a variant that is trained with K = 0 too, to have its own gain
REASONS = ("1/n", "plain SGD", "running statistics", "no statistics", "4 augmented views", WEAK_START)
PRETRAININGS = [
    Pretraining(backbone="conv4-64"),
    Pretraining(backbone="conv4-64", epochs=SHORT),
    Pretraining(backbone="conv4-128", epochs=10),
    *(Pretraining(backbone=name, dataset="mini-imagenet", **RECIPES["mini-imagenet"]) for name in BACKBONES),
]


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
    test_episodes: NonNegative = Field(1000, description="tasks of test classes; 0: as many as the paper has")
    baseline_episodes: NonNegative = Field(200, description="likewise, on which rivals are tested")
    studies: bool = Field(False, description="also what takes long: variants of SIB, the effect of compression")
    seed: NonNegative = Field(0, description="the first of the seeds")

    def experiments(self) -> list[FewShot]:
        """All meta-trainings, seed after seed."""
        common = FewShot(**{name: getattr(self, name) for name in ("eta", "steps", "val_episodes")})
        return [
            dataclasses.replace(common, **origin, **episodes(self.test_episodes, origin), shots=shots, K=K, seed=seed)
            for origin in self.origins()
            for seed in range(self.seed, self.seed + self.seeds)
            for shots in self.shots
            for K in self.K
        ]

    def variants(self) -> list[FewShot]:
        """One seed of what the study of balance and the search for reasons compare."""
        base = dataclasses.replace(self.experiments()[0], shots=1, K=3)
        inductive = [dataclasses.replace(base, transductive=False, shots=shots) for shots in SHOTS]
        return variants(base, VARIANTS) + inductive

    def image_variants(self) -> list[FewShot]:
        return variants(dataclasses.replace(self.experiments()[0], shots=1, K=3), IMAGE_VARIANTS)

    def rivals(self) -> list[Rival]:
        """All methods on the tasks of all experiments."""
        common = Rival(val_episodes=self.val_episodes)
        return [
            dataclasses.replace(common, **origin, **episodes(self.baseline_episodes, origin), method=name, shots=shots)
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


def episodes(asked: int, origin: Mapping[str, str]) -> dict[str, int]:
    return {"test_episodes": asked or TEST_EPISODES.get(origin["dataset"], 5000)}


def protocol(dataset: str, backbone: str, **changes: Any) -> FewShot:
    """The paper's protocol: 40,000 steps, and as many test tasks as its data set has."""
    features = shipped.where("shipped", dataset, backbone)
    origin = {"dataset": dataset, "backbone": backbone, "features": features}
    return FewShot(**origin, **episodes(0, origin), **changes)


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


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings behind `Results`, likewise."""

    sib: Mapping[tuple[int, int], list[FewShot]]
    inductive: Mapping[tuple[int, int], list[FewShot]]
    variants: Mapping[tuple[str, int], list[FewShot]]
    rivals: Mapping[tuple[str, int], list[Rival]]

    @property
    def tried(self) -> list[FewShot]:
        """What is tried on unbalanced queries: the first seed, on one shot."""
        plain = [runs[0] for (shots, _), runs in self.sib.items() if shots == 1]
        return plain + [runs[0] for (name, _), runs in self.variants.items() if name in VARIANTS]


def plan(dataset: str, backbone: str) -> Plan:
    base = protocol(dataset, backbone)
    sib = {
        (shots, K): [dataclasses.replace(base, shots=shots, K=K, seed=seed) for seed in SEEDS]
        for shots in SHOTS
        for K in STEPS
    }
    inductive, changed = {}, {}
    if (dataset, backbone) == ORIGINS[0]:  # what is studied, rather than measured alone
        inductive = {(shots, 3): [dataclasses.replace(base, shots=shots, transductive=False)] for shots in SHOTS}
        changes = VARIANTS | IMAGE_VARIANTS
        changed = {(name, 3): [dataclasses.replace(base, **change)] for name, change in changes.items()}
        changed[WEAK_START, 0] = [dataclasses.replace(base, **changes[WEAK_START], K=0)]
    rivals = {(name, shots): [_rival(base, name, shots)] for shots in SHOTS for name in BASELINES}
    return Plan(sib, inductive, changed, rivals)


def published(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> Results:
    """Exactly the runs that are planned, as far as they are published."""
    planned = plan(dataset, backbone)
    return Results(
        sib=facts(FEW_SHOT, planned.sib),
        inductive=facts(FEW_SHOT, planned.inductive),
        variants=facts(FEW_SHOT, planned.variants),
        rivals={key: records[0] for key, records in facts(RIVAL, planned.rivals).items()},
        unbalanced={FEW_SHOT.id(p): record for p in planned.tried if (record := UNBALANCED.published(p))},
    )


def declared() -> dict[Experiment, list[Any]]:
    """Every run of this study that is, or is to be, published."""
    plans = [plan(*origin) for origin in ORIGINS]
    trainings = [p for one in plans for part in (one.sib, one.inductive, one.variants) for p in _flat(part)]
    return {
        FEW_SHOT: trainings,
        RIVAL: [p for one in plans for p in _flat(one.rivals)],
        UNBALANCED: [p for one in plans for p in one.tried],
        INSIDE: [protocol(*ORIGINS[0], K=3)],
        COMPRESSION: _compressed(),
        JPEG: _recoded(),
        PRETRAIN: PRETRAININGS,
    }


def compressions() -> list[Record]:
    """What the compression of features costs: one seed, no steps and three."""
    return COMPRESSION.facts(_compressed())


def jpegs() -> list[Record]:
    """Test images as JPEG: one shot, no steps and three."""
    return JPEG.facts(_recoded())


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
    return paired(*(right(records, name) for records in same_seeds(before, after)), queries(before[0]))


def same_seeds(before: Sequence[Record], after: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Those of the seeds that both have, in the same order."""
    by_seed = [{record.params["seed"]: record for record in records} for records in (before, after)]
    common = sorted(by_seed[0].keys() & by_seed[1].keys())
    return [by_seed[0][seed] for seed in common], [by_seed[1][seed] for seed in common]


def _rival(base: FewShot, method: str, shots: int) -> Rival:
    same = {name: getattr(base, name) for name in ("dataset", "backbone", "features", "val_episodes", "test_episodes")}
    return Rival(method=method, shots=shots, **same)


def facts(experiment: Experiment, plan: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Record]]:
    """The published runs of a plan by its keys; a key without any is left out."""
    found = {key: experiment.facts(settings) for key, settings in plan.items()}
    return {key: records for key, records in found.items() if records}


def _flat(plan: Mapping[Any, Sequence[Any]]) -> list[Any]:
    return [p for settings in plan.values() for p in settings]


def _compressed() -> list[FewShot]:
    return [protocol(*ORIGINS[0], shots=shots, K=K) for shots in SHOTS for K in (0, 3)]


def _recoded() -> list[FewShot]:
    return [protocol(*ORIGINS[0], K=K) for K in (0, 3)]
