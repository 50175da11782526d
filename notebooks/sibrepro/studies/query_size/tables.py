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

PAPERS = {"val": "validation", "test": "test"}  # How the paper's table names the splits.


def score(records: Sequence[Record], split: str, tested: Literal["usual", "own"]) -> Score:
    """Return the accuracy in percent over all seeds of a setting.

    Args:
        records: one run of each seed.
        split: "val" or "test".
        tested: "usual" for 15 queries per class in testing, "own" for as many as in training.
    """
    p = records[0].params
    queries = USUAL if tested == "usual" else p["queries"]
    return over_seeds(right(records, f"{split}/{tested}"), p["ways"] * queries)


def difference(first: Sequence[Record], second: Sequence[Record]) -> Score:
    """Return the accuracy of `second` minus that of `first`, on the same test tasks of 15 queries per class."""
    before, after = (right(records, "test/usual").mean(0) for records in (first, second))
    return paired(before, after, first[0].params["ways"] * USUAL)


def against_ten(
    found: Mapping[Key, Sequence[Record]], longer: Mapping[Key, Sequence[Record]], backbone: str
) -> list[str]:
    """Return lines of text that compare training with n = 45 and with n = 10 at the full protocol.

    Args:
        found: runs of `QUERY_SIZE` by setting.
        longer: runs of `RESCALED` by setting.
        backbone: the backbone that is reported.
    """
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
    """Return rows for `tables.query_size`: one for each setting, split and number of queries in testing.

    Args:
        found: runs of `QUERY_SIZE` by setting, one of each seed.
    """
    rows = []
    for (_, shots, n), records in found.items():
        p = records[0].params
        setting = {"shots": shots, "n": n, "K": p["K"], "eta": p["eta"]}
        for split, name in PAPERS.items():
            for tested, how in {USUAL: "usual", n: "own"}.items():  # For n = 15 this is one row, not two.
                rows.append(tables.row(records, score(records, split, how), split=name, tested=tested, **setting))
    return pd.DataFrame(rows)


def table() -> pd.DataFrame:
    """Return the appendix's table over n, with every number of the paper's and every number of ours."""
    rows = [table_rows(published(dataset)) for dataset in BACKBONES]
    return tables.query_size(pd.concat(rows, ignore_index=True))
