"""The tables of notebook 06, as data frames made of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.statistics import Score, over_seeds, paired, right
from sibrepro.studies.query_size.experiment import USUAL
from sibrepro.studies.query_size.plan import BACKBONES, SHOTS, Key, published

PAPERS = {"val": "validation", "test": "test"}  # splits as the paper's table names them


def score(records: Sequence[Record], split: str, tested: Literal["usual", "own"]) -> Score:
    """Accuracy in percent, seeds together."""
    p = records[0].params
    return over_seeds(right(records, f"{split}/{tested}"), p["ways"] * (USUAL if tested == "usual" else p["queries"]))


def difference(first: Sequence[Record], second: Sequence[Record], split: str = "test") -> Score:
    """Second minus first, on the same tasks of 15 queries per class."""
    name = f"{split}/usual"
    return paired(right(first, name).mean(0), right(second, name).mean(0), first[0].params["ways"] * USUAL)


def against_ten(
    found: Mapping[Key, Sequence[Record]], longer: Mapping[Key, Sequence[Record]], backbone: str
) -> list[str]:
    """What training with n = 45 does beside n = 10 at the full protocol, in words; `longer` are runs of `RESCALED`."""
    lines = []
    for shots in SHOTS:
        small, large = (found.get((backbone, shots, n), []) for n in (10, 45))
        same_length = longer.get((backbone, shots, 45), [])
        if small and large and same_length and {r.params["steps"] for r in (*small, *large)} == {40_000}:
            fall, rest = difference(small, large), difference(small, same_length)
            own = score(large, "test", "own").mean > score(small, "test", "own").mean
            near = "tested with 15 and steps of the trained length, within 0.3 points or better"
            lines += [
                f"{backbone}, {shots}-shot, n = 45 against n = 10",
                f"  tested with 15, worse: {bool(fall.mean + fall.ci95 < 0)}",
                f"  {near}: {bool(rest.mean > -0.3)}",
                f"  tested with n, better: {own}",
            ]
    return lines


def table_rows(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """For `tables.query_size`: one row for each setting, split and number of queries in testing, seeds together."""
    rows = []
    for (_, shots, n), records in found.items():
        setting = {"shots": shots, "n": n} | {name: records[0].params[name] for name in ("K", "eta")}
        for split, name in PAPERS.items():
            for tested, how in {USUAL: "usual", n: "own"}.items():  # one and the same for n = 15
                rows.append(tables.row(records, score(records, split, how), split=name, tested=tested, **setting))
    return pd.DataFrame(rows)


def table() -> pd.DataFrame:
    """The appendix's table over n: every number of the paper's, and every number of ours."""
    rows = [table_rows(published(dataset)) for dataset in BACKBONES]  # the paper's own data set first
    return tables.query_size(pd.concat(rows, ignore_index=True))
