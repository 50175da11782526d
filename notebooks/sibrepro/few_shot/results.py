"""What has been measured of few-shot learning: the run records of notebook 03, gathered, and their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from sibcore.baselines import BASELINES
from sibrepro import paper
from sibrepro.facts import runs
from sibrepro.facts.runs import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot import unbalanced as realism
from sibrepro.few_shot.experiment import FewShot
from sibrepro.few_shot.rivals import Baseline, Score, over_seeds, paired
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters

FULL = 40_000  # steps of the paper's protocol
SHORT = 5  # epochs of a pretraining that leaves a weaker network than the paper's
PLAIN = runs.as_dict(FewShot())
VARIABLES = ("dataset", "backbone", "features", "shots", "K", "eta", "transductive", "steps", "val_episodes")
VARIABLES += ("test_episodes", "seed")  # what runs of the paper's own SIB, inductive or not, may differ in


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

    def variant_experiments(self) -> list[FewShot]:
        """One seed of what the realism study and the search for reasons compare: 1-shot, K = 3, one thing changed."""
        base = dataclasses.replace(self.experiments()[0], shots=1, K=3)
        changes: list[dict[str, Any]] = [
            *({"normalise": name} for name in ("running", "none")),
            {"equivariant": True},
            {"alpha": realism.ALPHA},
            {"reduction": "mean"},
            {"optimiser": "paper"},
            {"fidelity": "paper"},
            {"transductive": False},
            {"transductive": False, "shots": 5},
        ]
        return [dataclasses.replace(base, **change) for change in changes]

    def image_experiments(self) -> list[FewShot]:
        """What the search for reasons compares and only images can give: augmented views, a shorter pretraining."""
        base = dataclasses.replace(self.experiments()[0], features="images", shots=1, K=3)
        return [
            dataclasses.replace(base, **change)
            for change in ({"views": 4}, {"epochs": SHORT}, {"epochs": SHORT, "K": 0})
        ]

    def baselines(self) -> list[Baseline]:
        """All methods on the tasks of all experiments."""
        common = Baseline(val_episodes=self.val_episodes, test_episodes=self.baseline_episodes)
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


@dataclasses.dataclass(frozen=True)
class Results:
    """The fullest runs there are of one image set and backbone; a list has one record of each seed.

    sib, inductive: by (shots, K), at eta = 1e-3; variants: by (shots, K, what differs from the plain SIB)
    baselines: by (method, shots); realism: by the id of the run that was tried
    """

    sib: Mapping[tuple[int, int], list[Record]]
    inductive: Mapping[tuple[int, int], list[Record]]
    variants: Mapping[tuple[int, int, str], list[Record]]
    baselines: Mapping[tuple[str, int], Record]
    realism: Mapping[str, Record]

    @property
    def records(self) -> list[Record]:
        return [record for seeds in self.sib.values() for record in seeds]


def gather(dataset: str, backbone: str) -> Results:
    """From the project's own runs and those made here."""
    here = [r for r in runs.published("few_shot") if _is_of(r, dataset, backbone)]
    plain = [r for r in here if is_plain(r.params) and (r.params["eta"] == 1e-3 or r.params["K"] == 0)]
    others = [r for r in here if not is_plain(r.params)]
    tested = [r for r in runs.published("baseline") if _is_of(r, dataset, backbone)]
    return Results(
        sib=by_shots_and_K(r for r in plain if r.params["transductive"]),
        inductive=by_shots_and_K(r for r in plain if not r.params["transductive"]),
        variants=_fullest_by(others, lambda p: (p["shots"], p["K"], sib_label(p))),
        baselines={
            key: records[0] for key, records in _fullest_by(tested, lambda p: (p["method"], p["shots"])).items()
        },
        realism={run_of(r): r for r in runs.published("realism") if _is_of(r, dataset, backbone)},
    )


def _is_of(record: Record, dataset: str, backbone: str) -> bool:
    return (record.params["dataset"], record.params["backbone"]) == (dataset, backbone)


def by_shots_and_K(records: Iterable[Record]) -> dict[tuple[int, int], list[Record]]:
    """The fullest runs, by (shots, K)."""
    return _fullest_by(records, lambda p: (p["shots"], p["K"]))


def _fullest_by(records: Iterable[Record], key: Any) -> dict[Any, list[Record]]:
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record.params), []).append(record)
    return {name: fullest(groups[name]) for name in sorted(groups)}


def fullest(records: Sequence[Record]) -> list[Record]:
    """Those trained, and tested, longest; in the order of their seeds."""
    effort = [(r.params.get("steps", 0), r.params["test_episodes"]) for r in records]
    chosen = [record for record, spent in zip(records, effort, strict=True) if spent == max(effort)]
    return sorted(chosen, key=lambda record: record.params.get("seed", 0))


def is_plain(params: Mapping[str, Any]) -> bool:
    """Whether it is the paper's own SIB, or its inductive variant."""
    return all(params[name] == PLAIN[name] for name in PLAIN if name not in VARIABLES)


def run_of(record: Record) -> str:
    """The id of the few-shot run that a record looks into."""
    return runs.run_id("few_shot", record.params)


def right(records: Sequence[Record], name: str) -> np.ndarray:
    """Right answers [S, N] of several seeds."""
    return np.stack([record.arrays[name] for record in records])


def queries(record: Record) -> int:
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], checkpoint: str = "best") -> Score:
    """The test score of several seeds of one setting."""
    return over_seeds(right(records, f"{checkpoint}/{records[0].params['shots']}shot"), queries(records[0]))


def gain(before: Sequence[Record], after: Sequence[Record], shots: int | None = None) -> Score:
    """How much better `after` answers the same tasks, of `shots`, or of those that `before` was trained with."""
    name = f"best/{shots or before[0].params['shots']}shot"
    return paired(right(before, name), right(after, name), queries(before[0]))


def sib_label(params: Mapping[str, Any]) -> str:
    """The name of a kind of SIB in tables; the paper's own is plain "SIB"."""
    parts = ["SIB" if params["transductive"] else "inductive SIB"]
    parts += ["equivariant ξ"] * params["equivariant"]
    shown = ("fidelity", "optimiser", "normalise", "reduction", "alpha", "epochs", "views", "queries", "lr")
    parts += [f"{name} {params[name]}" for name in shown if params[name] != PLAIN[name]]
    return ", ".join(parts)


def profile(params: Mapping[str, Any]) -> str:
    """Which profile makes such a run."""
    if params.get("steps", FULL) < FULL or params["test_episodes"] < 2000:
        return "quick"
    return "cpu" if params["dataset"] == "cifar-fs" and params["backbone"].startswith("conv4") else "paper"


def balanced(record: Record) -> Score:
    return Score(record.metrics["balanced"], record.metrics["balanced_ci95"])


def variant_scores(results: Results, *options: str, K: int = 3) -> dict[str, Score]:
    """1-shot scores of K = 0, of SIB, and of its variants whose label begins with one of these options."""
    scores = {f"SIB, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    for (shots, k, label), records in results.variants.items():
        if (shots, k) == (1, K) and any(label.startswith(f"SIB, {option}") for option in options):
            scores[label] = sib_score(records)
    return scores


def order_scores(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of one order of the classes, of probabilities averaged over orders, and of an equivariant xi."""
    scores = variant_scores(results, "equivariant ξ", K=K)
    for record in results.sib.get((1, K), [])[:1]:
        if record.id in results.realism:
            metrics = results.realism[record.id].metrics
            scores["averaged over ten orders"] = Score(metrics["averaged"], metrics["averaged_ci95"])
    return scores


def reasons(results: Results, K: int = 3) -> dict[str, Score]:
    """1-shot scores of the paper's SIB, of ours, and of ours with one thing changed."""
    printed = paper.few_shot().query(
        "dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1 and method == 'SIB'"
    )
    scores = {f"paper, K = {row.K}": Score(row.value, row.ci95) for row in printed.itertuples() if row.K in (0, K)}
    scores |= {f"ours, K = {k}": sib_score(results.sib[1, k]) for k in (0, K) if (1, k) in results.sib}
    for (shots, k, label), records in results.variants.items():
        if shots == 1 and not label.startswith(("SIB, equivariant", "SIB, alpha", "SIB, fidelity", "inductive")):
            scores[f"{label.removeprefix('SIB, ')}, K = {k}"] = sib_score(records)
    return scores
