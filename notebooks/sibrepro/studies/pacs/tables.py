"""The appendix's table of domain adaptation from runs: scores, paired differences, the paper beside ours."""

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
from sibrepro.studies.pacs.plan import Key, Scores, name_of, published

AVERAGE = "average"
ByTarget = Mapping[str, Sequence[Record]]


def correct(records: Sequence[Record], predictions: str = "predicted") -> np.ndarray:
    """Whether each target image was classified rightly, bool [S, N], a row for each seed."""
    return np.stack([record.arrays[predictions] == record.arrays["labels"] for record in records])


def score(records: Sequence[Record], predictions: str = "predicted") -> Score:
    """Accuracy on one target; its interval is over images and seeds."""
    return over_seeds(correct(records, predictions), 1)


def gain(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """Points by which `after` is better on the same images, with the seeds that both have."""
    return statistics.gain(before, after, lambda record: correct([record])[0], 1)


def scores(by_target: ByTarget, predictions: str = "predicted") -> dict[str, Score]:
    """Accuracy on each target, and on average."""
    return _with_average({target: score(records, predictions) for target, records in by_target.items()})


def gains(before: ByTarget, after: ByTarget) -> dict[str, Score]:
    """`gain` on each target that both have, and on average."""
    there = [target for target in DOMAINS if target in before and target in after]
    return _with_average({target: gain(before[target], after[target]) for target in there})


def _with_average(found: dict[str, Score]) -> dict[str, Score]:
    """The average, where there are all four domains; their images and trainings are different ones."""
    if not set(DOMAINS) <= set(found):
        return found
    mean = float(np.mean([found[domain].mean for domain in DOMAINS]))
    ci95 = math.sqrt(sum(found[domain].ci95 ** 2 for domain in DOMAINS)) / len(DOMAINS)
    return found | {AVERAGE: Score(mean, ci95)}


def class_gains(before: ByTarget, after: ByTarget) -> pd.DataFrame:
    """Points gained in each domain (a row) and class, seeds averaged; NaN where a domain is missing."""
    gained = {}
    for target in set(before) & set(after):
        labels = after[target][0].arrays["labels"]
        difference = correct(after[target]).mean(0) - correct(before[target]).mean(0)
        gained[target] = [100 * difference[labels == label].mean() for label in range(len(CLASSES))]
    return pd.DataFrame(gained, index=CLASSES).T.reindex(DOMAINS)


def confusion(records: Sequence[Record]) -> np.ndarray:
    """Share of the images of class i that are taken for class j, [7, 7], seeds together."""
    labels, predicted = (np.concatenate([r.arrays[name] for r in records]) for name in ("labels", "predicted"))
    places = range(len(CLASSES))
    return pd.crosstab(labels, predicted, normalize="index").reindex(places, columns=places, fill_value=0).to_numpy()


def table(found: Mapping[str, Scores]) -> pd.DataFrame:
    """One row a number: what the paper prints and each of ours, side by side where target, method and K agree.

    `backbone` is that of our number, or the paper's ResNet-18 if there is none; `features` says what of f was trained.
    """
    rows = []
    for features, methods in found.items():
        for (method, K), by_target in methods.items():
            setting = {"method": method, "K": K if "SIB" in method else None, "features": features}
            behind = {**by_target, AVERAGE: flat(by_target)}
            for target, number in scores(by_target).items():
                rows.append(tables.row(behind[target], number, target=target, **setting))
    same, numbers = ["target", "method", "K"], [*tables.OURS, "seeds", "steps", "run"]
    ours = pd.DataFrame(rows, columns=[*same, "backbone", "features", *numbers])
    ours = ours.astype({"K": "Int64", "seeds": "Int64", "steps": "Int64", **dict.fromkeys(tables.OURS, "float64")})
    both = paper.pacs().rename(columns={"value": "paper"})[[*same, "paper"]].merge(ours, on=same, how="outer")
    places = {name: place for place, name in enumerate((*DOMAINS, AVERAGE, "JiGen", *METHODS))}
    both = both.fillna({"backbone": "resnet18"}).sort_values(
        [*same, "features"],
        key=lambda column: column.map(places) if column.name in same[:2] else column,
        kind="stable",
        ignore_index=True,
    )
    return both[[*same, "backbone", "features", "paper", *numbers]]


def differences(found: Mapping[str, Scores], pairs: Sequence[tuple[Key, Key]]) -> pd.DataFrame:
    """Paired gains by kind of features, pair of methods and target: features, before, after, target, gain, ci95."""
    rows = [
        (features, name_of(before), name_of(after), target, number.mean, number.ci95)
        for features, methods in found.items()
        for before, after in pairs
        for target, number in gains(methods.get(before, {}), methods.get(after, {})).items()
    ]
    return pd.DataFrame(rows, columns=["features", "before", "after", "target", "gain", "ci95"])


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: both methods, on its target or on all."""
    methods = {name_of(key): by_target for key, by_target in published()[row["features"]].items()}
    both = [methods[row["before"]], methods[row["after"]]]
    if row["target"] == AVERAGE:
        return [record for by_target in both for record in flat(by_target)]
    return [record for by_target in both for record in by_target[row["target"]]]


def reading(methods: Scores) -> pd.DataFrame:
    """For reading: a row a method, a column a target, "85.1 ± 0.9"."""
    cells = [{target: str(number) for target, number in scores(by_target).items()} for by_target in methods.values()]
    rows = [{"method": name_of(key)} | row for key, row in zip(methods, cells, strict=True)]
    return pd.DataFrame(rows, columns=["method", *DOMAINS, AVERAGE]).fillna("")


PAIRS = [
    (("source-only", 0), ("Rot", 0)),
    (("Rot", 0), ("SIB", 1)),
    (("Rot", 0), ("SIB", 3)),
    (("Rot", 0), ("SIB", 5)),
    (("Rot", 0), ("SIB-Rot", 0)),
    (("SIB-Rot", 0), ("SIB-Rot", 3)),
    (("SIB", 3), ("SIB-Rot", 3)),
    (("source-only", 0), ("SIB-Rot", 3)),
]  # of methods, before and after


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's numbers of SIB-Rot, none of which is measured: ours are all of another network."""
    rows = table[table["method"] == "SIB-Rot"].drop_duplicates(["target", "K"])
    return rows.assign(verdict=tables.NOT_MEASURED)


def cite(features: str, method: str, K: str, target: str) -> float:
    """An accuracy of ours: kind of features, method, K and target."""
    return scores(published()[features][method, int(K)])[target].mean
