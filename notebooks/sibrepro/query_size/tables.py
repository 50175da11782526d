"""The tables of notebook 06, as data frames made of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.query_size.experiment import USUAL
from sibrepro.query_size.plan import BACKBONES, Key, published
from sibrepro.statistics import Score, over_seeds, paired, right

GENERALISATION = ("risk", "gap", "gap_ci95", "sigma", "sigma_worst", "sigma_bound")
COEFFICIENTS = {"coefficient": "sigma", "coefficient_sure": "sigma_bound"}
PAPERS = {"val": "validation", "test": "test"}  # splits as the paper's table names them


def score(records: Sequence[Record], split: str, tested: Literal["usual", "own"]) -> Score:
    """Accuracy in percent, seeds together."""
    p = records[0].params
    return over_seeds(right(records, f"{split}/{tested}"), p["ways"] * (USUAL if tested == "usual" else p["queries"]))


def difference(first: Sequence[Record], second: Sequence[Record], split: str = "test") -> Score:
    """Second minus first, on the same tasks of 15 queries per class."""
    name = f"{split}/usual"
    return paired(right(first, name).mean(0), right(second, name).mean(0), first[0].params["ways"] * USUAL)


def table_rows(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """For `tables.query_size`: one row for each setting, split and number of queries in testing, seeds together."""
    rows = []
    for (_, shots, n), records in found.items():
        setting = {"shots": shots, "n": n} | {name: records[0].params[name] for name in ("K", "eta")}
        for split, name in PAPERS.items():
            for tested, how in {USUAL: "usual", n: "own"}.items():  # one and the same for n = 15
                rows.append(tables.row(records, score(records, split, how), split=name, tested=tested, **setting))
    return pd.DataFrame(rows)


def published_rows() -> pd.DataFrame:
    """`table_rows` of everything published: the paper's own data set first."""
    return pd.concat([table_rows(published(dataset)) for dataset in BACKBONES], ignore_index=True)


def corollary_terms(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """What can be measured of the corollary, one row for each setting, seeds averaged: eq. (popeb) >= term + risk.

    |d| is all queries of a task; the coefficient |d| / 2 sigma² takes the average task's sigma, and `coefficient_sure`
    Hoeffding's. The term |d| gen(q)² / 2 sigma² is, by Theorem 2, at most I(w; d | t).
    """
    rows = []
    for (backbone, shots, n), records in found.items():
        mean = {name: float(np.mean([r.metrics[name] for r in records])) for name in GENERALISATION}
        size = records[0].params["ways"] * n
        half = {name: size / (2 * mean[sigma] ** 2) for name, sigma in COEFFICIENTS.items()}
        terms = {name.replace("coefficient", "term"): value * mean["gap"] ** 2 for name, value in half.items()}
        rows.append({"backbone": backbone, "shots": shots, "n": n} | mean | half | terms)
    return pd.DataFrame(rows)
