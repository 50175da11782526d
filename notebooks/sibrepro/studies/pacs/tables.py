"""The tables of notebook 05, made from runs: scores, paired differences, and the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sibcore.adapt import METHODS
from sibcore.datasets.pacs import CLASSES, DOMAINS
from sibrepro import paper, statistics, tables
from sibrepro.facts import Record, flat
from sibrepro.statistics import Score, over_seeds
from sibrepro.studies.pacs.plan import Scores, name_of, published

AVERAGE = "average"  # over the four targets
ByTarget = Mapping[str, Sequence[Record]]  # the runs of a method: one run of each seed for every target

# Methods to compare, before and after.
PAIRS = [
    (("source-only", 0), ("Rot", 0)),
    (("Rot", 0), ("SIB", 1)),
    (("Rot", 0), ("SIB", 3)),
    (("Rot", 0), ("SIB", 5)),
    (("Rot", 0), ("SIB-Rot", 0)),
    (("SIB-Rot", 0), ("SIB-Rot", 3)),
    (("SIB", 3), ("SIB-Rot", 3)),
    (("source-only", 0), ("SIB-Rot", 3)),
]


def correct(records: Sequence[Record], predictions: str = "predicted") -> np.ndarray:
    """Tell whether each target image was classified rightly, bool `[S, N]`: one row for each seed."""
    return np.stack([record.arrays[predictions] == record.arrays["labels"] for record in records])


def score(records: Sequence[Record], predictions: str = "predicted") -> Score:
    """Return the accuracy on one target, with an interval over images and seeds."""
    return over_seeds(correct(records, predictions), 1)


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """Return how many points `after` is better on the same images, with the seeds that both have."""
    return statistics.gain(before, after, lambda record: correct([record])[0], 1)


def scores(by_target: ByTarget, predictions: str = "predicted") -> dict[str, Score]:
    """Return the accuracy on each target and on average."""
    return _with_average({target: score(records, predictions) for target, records in by_target.items()})


def gains(before: ByTarget, after: ByTarget) -> dict[str, Score]:
    """Return the `gain` on each target that both have, and on average."""
    both = [target for target in DOMAINS if target in before and target in after]
    return _with_average({target: gain(before[target], after[target]) for target in both})


def _with_average(found: dict[str, Score]) -> dict[str, Score]:
    """Add the average to the numbers of the targets if all four are there.

    Targets have different images and trainings, so that their errors are independent and the variances add up.
    """
    if not set(DOMAINS) <= set(found):
        return found
    mean = float(np.mean([found[domain].mean for domain in DOMAINS]))
    ci95 = math.sqrt(sum(found[domain].ci95 ** 2 for domain in DOMAINS)) / len(DOMAINS)
    return found | {AVERAGE: Score(mean, ci95)}


def class_gains(before: ByTarget, after: ByTarget) -> pd.DataFrame:
    """Return the points gained in each domain (a row) and class (a column), averaged over seeds.

    Where a domain is missing, the values are NaN.
    """
    gained = {}
    for target in set(before) & set(after):
        labels = after[target][0].arrays["labels"]
        difference = correct(after[target]).mean(0) - correct(before[target]).mean(0)
        gained[target] = [100 * difference[labels == label].mean() for label in range(len(CLASSES))]
    return pd.DataFrame(gained, index=CLASSES).T.reindex(DOMAINS)


def confusion(records: Sequence[Record]) -> np.ndarray:
    """Return the share of the images of class i that are taken for class j, `[7, 7]`, over all seeds."""
    labels = np.concatenate([record.arrays["labels"] for record in records])
    predicted = np.concatenate([record.arrays["predicted"] for record in records])
    places = range(len(CLASSES))
    return pd.crosstab(labels, predicted, normalize="index").reindex(places, columns=places, fill_value=0).to_numpy()


def table(found: Mapping[str, Scores]) -> pd.DataFrame:
    """Return a row for each number, with the paper's and ours side by side where target, method and K agree.

    The column "backbone" is that of our number, or the paper's ResNet-18 if we have none. The column "features" tells
    how much of f was trained.
    """
    rows = []
    for features, methods in found.items():
        for (method, K), by_target in methods.items():
            setting = {"method": method, "K": K if "SIB" in method else None, "features": features}
            for target, number in scores(by_target).items():
                behind = flat(by_target) if target == AVERAGE else by_target[target]
                rows.append(tables.row(behind, number, target=target, **setting))
    same, numbers = ["target", "method", "K"], [*tables.OURS, "seeds", "steps", "run"]
    ours = pd.DataFrame(rows, columns=[*same, "backbone", "features", *numbers])
    ours = ours.astype({"K": "Int64", "seeds": "Int64", "steps": "Int64", **dict.fromkeys(tables.OURS, "float64")})
    both = paper.pacs().rename(columns={"value": "paper"})[[*same, "paper"]].merge(ours, on=same, how="outer")
    places = {name: place for place, name in enumerate((*DOMAINS, AVERAGE, "JiGen", *METHODS))}  # in this order
    both = both.fillna({"backbone": "resnet18"}).sort_values(
        [*same, "features"],
        key=lambda column: column.map(places) if column.name in same[:2] else column,
        kind="stable",
        ignore_index=True,
    )
    return both[[*same, "backbone", "features", "paper", *numbers]]


def differences(found: Mapping[str, Scores]) -> pd.DataFrame:
    """Return the gain of each of `PAIRS` in points, by kind of features and target."""
    rows = []
    for features, methods in found.items():
        for before, after in PAIRS:
            for target, number in gains(methods.get(before, {}), methods.get(after, {})).items():
                rows.append((features, name_of(before), name_of(after), target, *number))
    return pd.DataFrame(rows, columns=["features", "before", "after", "target", "gain", "ci95"])


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: those of both methods, on its target or on all."""
    methods = {name_of(key): by_target for key, by_target in published()[row["features"]].items()}
    targets = DOMAINS if row["target"] == AVERAGE else [row["target"]]
    return [record for side in ("before", "after") for target in targets for record in methods[row[side]][target]]


def reading(methods: Scores) -> pd.DataFrame:
    """Return a table to read, with a row for each method, a column for each target, and cells such as "85.1 ± 0.9"."""
    rows = []
    for key, by_target in methods.items():
        rows.append({"method": name_of(key)} | {target: str(score) for target, score in scores(by_target).items()})
    return pd.DataFrame(rows, columns=["method", *DOMAINS, AVERAGE]).fillna("")


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's numbers of SIB-Rot. None of them is measured, because our numbers are of another network."""
    rows = table[table["method"] == "SIB-Rot"].drop_duplicates(["target", "K"])
    return rows.assign(verdict=tables.NOT_MEASURED)


def cite(features: str, method: str, K: str, target: str) -> float:
    """Return one of our accuracies, for texts that cite it."""
    return scores(published()[features][method, int(K)])[target].mean
