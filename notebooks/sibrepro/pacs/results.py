"""The appendix's table of domain adaptation from run records: scores, paired differences, the paper beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sibcore.datasets.pacs import DOMAINS
from sibrepro import paper
from sibrepro.facts import runs
from sibrepro.facts.runs import Record
from sibrepro.few_shot.rivals import Score, over_seeds, paired
from sibrepro.pacs import experiment as adaptation_runs
from sibrepro.pacs.experiment import Adaptation
from sibrepro.params import Count, NonNegative, Positive, one_or_several, parameters

AVERAGE = "average"
PROFILES = {"all": "paper", "upper": "cpu", "frozen": "cpu", "shipped": "quick"}
METHODS = ("source-only", "Rot", "SIB", "SIB-Rot")
Key = tuple[str, int]  # method and K
Scores = dict[Key, dict[str, list[Record]]]


@parameters
class AdaptationNotebook:
    """Notebook 05."""

    backbone: str = Field("efficientnet-lite0", description="feature network, with ImageNet's weights")
    features: Annotated[list[Literal["shipped", "frozen", "upper", "all"]], one_or_several] = Field(
        ["shipped"], min_length=1, description="the project's own; or of images, with none, a part or all of f trained"
    )
    size: Annotated[list[Count], one_or_several] = Field(
        [160], min_length=1, description="width of the images in pixels, for each of the features"
    )
    steps: Annotated[list[Count], one_or_several] = Field(
        [300], min_length=1, description="training steps, for each of the features"
    )
    targets: Annotated[list[Literal[DOMAINS]], one_or_several] = Field(
        list(DOMAINS), min_length=1, description="domains that are in turn without labels"
    )
    methods: Annotated[list[Literal[METHODS]], one_or_several] = Field(
        ["source-only", "SIB-Rot"], min_length=1, description="what to train"
    )
    K: Annotated[list[NonNegative], one_or_several] = Field([0, 3], min_length=1, description="of SIB-Rot, steps")
    eta: Positive = Field(0.03, description="step size of the inner updates, for means over a minibatch")
    batch: Annotated[list[Count], one_or_several] = Field(
        [32], min_length=1, description="images of each domain in a training step, for each of the features"
    )
    lr: Annotated[list[Positive], one_or_several] = Field(
        [3e-3], min_length=1, description="learning rate of Adam, for each of the features"
    )
    alpha: Annotated[list[Annotated[float, Field(ge=0)]], one_or_several] = Field(
        [1.0], min_length=1, description="Dirichlet spread of a source task's class proportions; 0: as they are"
    )
    seeds: Count = Field(1, description="trainings of each setting")

    def experiments(self) -> list[Adaptation]:
        """The grid. theta^0 = lambda without steps is a source-only or Rot classifier, so "SIB" has one K alone, 3."""
        together = (self.features, self.size, self.steps, self.batch, self.lr)
        if len({len(values) for values in together}) > 1:
            raise ValueError("features, size, steps, batch and lr belong together: give as many of each")
        return [
            Adaptation(
                backbone=self.backbone,
                features=features,
                size=size,
                steps=steps,
                target=target,
                method=method,
                K=K,
                eta=self.eta,
                batch=batch,
                lr=lr,
                turns=adaptation_runs.turns_for(features),
                alpha=alpha,
                seed=seed,
            )
            for features, size, steps, batch, lr in zip(*together, strict=True)
            for alpha in self.alpha
            for seed in range(self.seeds)
            for target in self.targets
            for method in self.methods
            if not (method == "Rot" and features in ("shipped", "frozen"))  # f learns nothing: it is source-only
            for K in {"SIB-Rot": self.K, "SIB": [3 if 3 in self.K else max(self.K)]}.get(method, [0])
        ]


def train(experiments: Sequence[Adaptation]) -> list[Record]:
    """The record of each experiment, from disk or trained now; those on the same features share them."""
    origins: dict[tuple, adaptation_runs.Origin] = {}
    records = []
    for p in experiments:
        key = (p.dataset, p.backbone, p.features, p.size)
        origins[key] = origins.get(key) or adaptation_runs.origin(p)
        records.append(adaptation_runs.adapt(p, origins[key]))
    return records


def scores_of(records: Sequence[Record]) -> Scores:
    """Records by (method, K), then by target, one of each seed; of several settings the one with the most steps."""
    groups: dict[Key, dict[str, dict[tuple, list[Record]]]] = {}
    for record in records:
        p = record.params
        setting = (p["steps"], *(p[name] for name in ("eta", "lr", "batch", "tasks", "turns", "turn_weight")))
        by_target = groups.setdefault((p["method"], p["K"]), {})
        by_target.setdefault(p["target"], {}).setdefault(setting, []).append(record)
    order = sorted(groups, key=lambda key: (METHODS.index(key[0]), key[1]))
    return {
        key: {target: max(groups[key][target].items())[1] for target in DOMAINS if target in groups[key]}
        for key in order
    }


def everything(backbone: str = "efficientnet-lite0") -> dict[str, Scores]:
    """What there is by kind of features, such as "frozen"; "frozen, α = 0" is without varied class proportions.

    Trials with a domain left out are no results.
    """
    there = [r for r in runs.published("adaptation") if (r.params["backbone"], r.params["left_out"]) == (backbone, "")]
    found = {
        kind if alpha else f"{kind}, α = 0": scores_of(
            [r for r in there if (r.params["features"], r.params["alpha"]) == (kind, alpha)]
        )
        for kind in PROFILES
        for alpha in (1.0, 0.0)
    }
    return {name: scores for name, scores in found.items() if scores}


def right(records: Sequence[Record], predictions: str = "predicted") -> np.ndarray:
    """Whether each target image was classified rightly, bool [S, N], a row for each seed."""
    ordered = sorted(records, key=lambda record: record.params["seed"])
    return np.stack([r.arrays.get(predictions, r.arrays["predicted"]) == r.arrays["labels"] for r in ordered])


def score(records: Sequence[Record], predictions: str = "predicted") -> Score:
    """Accuracy on one target; its interval is over images and seeds."""
    return over_seeds(right(records, predictions), 1)


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """Points by which `after` is better on the same images, with the seeds that both have."""
    seeds = {r.params["seed"] for r in before} & {r.params["seed"] for r in after}
    both = ([r for r in records if r.params["seed"] in seeds] for records in (before, after))
    return paired(*(right(records) for records in both), 1)


def mean(scores: Sequence[Score]) -> Score:
    """The average over domains, whose images and trainings are different ones."""
    return Score(
        float(np.mean([s.mean for s in scores])), math.sqrt(sum(s.ci95**2 for s in scores)) / max(1, len(scores))
    )


def average(by_target: Mapping[str, Sequence[Record]]) -> Score | None:
    """The accuracy averaged over all four domains, or None if one is missing."""
    return mean([score(by_target[target]) for target in DOMAINS]) if set(DOMAINS) <= set(by_target) else None


def average_gain(before: Mapping[str, Sequence[Record]], after: Mapping[str, Sequence[Record]]) -> Score | None:
    """`gain` averaged over the four domains, or None if one is missing."""
    if not set(DOMAINS) <= set(before) & set(after):
        return None
    return mean([gain(before[target], after[target]) for target in DOMAINS])


def class_gains(before: Mapping[str, Sequence[Record]], after: Mapping[str, Sequence[Record]]) -> np.ndarray:
    """Points gained in each domain and class, [4, 7], seeds averaged; NaN where a domain is missing."""
    gains = np.full((len(DOMAINS), 7), np.nan)
    for row, target in enumerate(DOMAINS):
        if target in before and target in after:
            labels = after[target][0].arrays["labels"]
            difference = right(after[target]).mean(0) - right(before[target]).mean(0)
            gains[row] = [100 * difference[labels == label].mean() for label in range(7)]
    return gains


def confusion(records: Sequence[Record]) -> np.ndarray:
    """Share of the images of class i that are taken for class j, [7, 7], seeds together."""
    counts = np.zeros((7, 7))
    for record in records:
        np.add.at(counts, (record.arrays["labels"], record.arrays["predicted"]), 1)
    return counts / counts.sum(1, keepdims=True)


def table(backbone: str = "efficientnet-lite0") -> pd.DataFrame:
    """One row a number: what the paper prints and each of ours, side by side where target, method and K agree.

    `backbone` is that of our number, or the paper's ResNet-18 if there is none; `features` says what of f was trained.
    """
    rows = []
    for name, scores in everything(backbone).items():
        for (method, K), by_target in scores.items():
            numbers = {target: (score(records), records) for target, records in by_target.items()}
            if (over_all := average(by_target)) is not None:
                numbers[AVERAGE] = (over_all, [r for records in by_target.values() for r in records])
            for target, (number, records) in numbers.items():
                rows.append(
                    {
                        **{"target": target, "method": method, "K": K if "SIB" in method else None},
                        **{"backbone": backbone, "features": name, "ours": number.mean, "ours_ci95": number.ci95},
                        **{"seeds": len({r.params["seed"] for r in records}), "steps": records[0].params["steps"]},
                        **{"profile": PROFILES[records[0].params["features"]]},
                        "run": " ".join(r.id for r in records),
                    }
                )
    columns = ["target", "method", "K", "backbone", "features", "ours", "ours_ci95", "seeds", "steps", "profile", "run"]
    whole = {"K": "Int64", "seeds": "Int64", "steps": "Int64", "ours": "float64", "ours_ci95": "float64"}
    ours = pd.DataFrame(rows, columns=columns).astype(whole)
    printed = paper.pacs().rename(columns={"value": "paper"})[["target", "method", "K", "paper"]]
    both = printed.merge(ours, on=["target", "method", "K"], how="outer", sort=False)
    both["backbone"] = both["backbone"].fillna("resnet18")
    place = {name: number for number, name in enumerate((*DOMAINS, AVERAGE))}
    rank = {name: number for number, name in enumerate(("JiGen", *METHODS))}
    sort_keys = {"target": place, "method": rank}
    both = both.sort_values(
        ["target", "method", "K", "features"],
        key=lambda column: column.map(sort_keys[column.name]) if column.name in sort_keys else column,
        kind="stable",
    )
    front = ["target", "method", "K", "backbone", "features", "paper"]
    return both[[*front, *columns[5:]]].reset_index(drop=True)


def differences(found: Mapping[str, Scores], pairs: Sequence[tuple[Key, Key]]) -> pd.DataFrame:
    """Paired gains by kind of features, pair of methods and target: features, before, after, target, gain, ci95."""
    rows = []
    for kind, scores in found.items():
        for before, after in pairs:
            if before in scores and after in scores:
                there = [target for target in DOMAINS if target in scores[before] and target in scores[after]]
                gains = {target: gain(scores[before][target], scores[after][target]) for target in there}
                if len(there) == len(DOMAINS):
                    gains[AVERAGE] = average_gain(scores[before], scores[after])
                names = (kind, name_of(before), name_of(after))
                rows += [(*names, target, number.mean, number.ci95) for target, number in gains.items()]
    return pd.DataFrame(rows, columns=["features", "before", "after", "target", "gain", "ci95"])


def at_size(by_target: Mapping[str, Sequence[Record]], size: int, order: str) -> float:
    """Accuracy averaged over the targets there are, with test minibatches of one size and order."""
    return float(np.mean([score(records, f"predicted/{size}/{order}").mean for records in by_target.values()]))


def records(scores: Scores) -> list[Record]:
    """All records behind some scores."""
    return [record for by_target in scores.values() for seeds in by_target.values() for record in seeds]


def seeds(scores: Scores, key: Key) -> int:
    """How many trainings of a method every target has."""
    return min((len(scores.get(key, {}).get(target, [])) for target in DOMAINS), default=0)


def said(gain: float, ci95: float) -> str:
    """A difference in words."""
    return "is above" if gain - ci95 > 0 else "is below" if gain + ci95 < 0 else "is not told apart from"


def name_of(key: Key) -> str:
    return f"{key[0]}, K = {key[1]}" if "SIB" in key[0] else key[0]


def reading(scores: Scores) -> pd.DataFrame:
    """For reading: a row a method, a column a target, "85.1 ± 0.9"."""
    rows = []
    for key, by_target in scores.items():
        cells = {target: str(score(records)) for target, records in by_target.items()}
        over_all = average(by_target)
        rows.append({"method": name_of(key)} | cells | {AVERAGE: str(over_all) if over_all else ""})
    return pd.DataFrame(rows, columns=["method", *DOMAINS, AVERAGE]).fillna("")
