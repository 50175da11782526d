"""The appendix's table of domain adaptation from runs: scores, paired differences, the paper beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sibcore.datasets.pacs import DOMAINS
from sibrepro import paper
from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.pacs.plan import METHODS, Key, Scores, name_of
from sibrepro.statistics import Score, over_seeds, paired

AVERAGE = "average"


def correct(records: Sequence[Record], predictions: str = "predicted") -> np.ndarray:
    """Whether each target image was classified rightly, bool [S, N], a row for each seed."""
    ordered = sorted(records, key=lambda record: record.params["seed"])
    return np.stack([r.arrays.get(predictions, r.arrays["predicted"]) == r.arrays["labels"] for r in ordered])


def score(records: Sequence[Record], predictions: str = "predicted") -> Score:
    """Accuracy on one target; its interval is over images and seeds."""
    return over_seeds(correct(records, predictions), 1)


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """Points by which `after` is better on the same images, with the seeds that both have."""
    seeds = {r.params["seed"] for r in before} & {r.params["seed"] for r in after}
    both = ([r for r in records if r.params["seed"] in seeds] for records in (before, after))
    return paired(*(correct(records) for records in both), 1)


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
            difference = correct(after[target]).mean(0) - correct(before[target]).mean(0)
            gains[row] = [100 * difference[labels == label].mean() for label in range(7)]
    return gains


def confusion(records: Sequence[Record]) -> np.ndarray:
    """Share of the images of class i that are taken for class j, [7, 7], seeds together."""
    counts = np.zeros((7, 7))
    for record in records:
        np.add.at(counts, (record.arrays["labels"], record.arrays["predicted"]), 1)
    return counts / counts.sum(1, keepdims=True)


def table(found: Mapping[str, Scores], backbone: str = "efficientnet-lite0") -> pd.DataFrame:
    """One row a number: what the paper prints and each of ours, side by side where target, method and K agree.

    `backbone` is that of our number, or the paper's ResNet-18 if there is none; `features` says what of f was trained.
    """
    rows = []
    for name, scores in found.items():
        for (method, K), by_target in scores.items():
            numbers = {target: (score(records), records) for target, records in by_target.items()}
            if (over_all := average(by_target)) is not None:
                numbers[AVERAGE] = (over_all, [r for records in by_target.values() for r in records])
            for target, (number, records) in numbers.items():
                rows.append(
                    {
                        **{"target": target, "method": method, "K": K if method in ("SIB", "SIB-Rot") else None},
                        **{"backbone": backbone, "features": name, "ours": number.mean, "ours_ci95": number.ci95},
                        **{"seeds": len({r.params["seed"] for r in records}), "steps": records[0].params["steps"]},
                        "run": named(records),
                    }
                )
    columns = ["target", "method", "K", "backbone", "features", "ours", "ours_ci95", "seeds", "steps", "run"]
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


def said(gain: float, ci95: float) -> str:
    """A difference in words."""
    return "is above" if gain - ci95 > 0 else "is below" if gain + ci95 < 0 else "is not told apart from"


def reading(scores: Scores) -> pd.DataFrame:
    """For reading: a row a method, a column a target, "85.1 ± 0.9"."""
    rows = []
    for key, by_target in scores.items():
        cells = {target: str(score(records)) for target, records in by_target.items()}
        over_all = average(by_target)
        rows.append({"method": name_of(key)} | cells | {AVERAGE: str(over_all) if over_all else ""})
    return pd.DataFrame(rows, columns=["method", *DOMAINS, AVERAGE]).fillna("")
