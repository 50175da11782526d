"""The tables of notebook 04, as data frames made of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.meta_training.runs import gain, sib_score
from sibrepro.statistics import Score
from sibrepro.studies.synthetic_gradients import plan
from sibrepro.studies.synthetic_gradients.plan import ETAS, RATE, TESTED, Key


def table_rows(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """Return rows for `tables.synthetic_gradients`: one for each setting and number of shots in testing.

    Args:
        found: few-shot runs by setting, one of each seed.
    """
    rows = []
    for (kind, shots, K, eta), records in found.items():
        setting = {"variant": kind, "trained_shots": shots, "K": K, "eta": eta}
        rows += [tables.row(records, sib_score(records, shots=n), tested_shots=n, **setting) for n in TESTED]
    return pd.DataFrame(rows)


def table() -> pd.DataFrame:
    """Return the appendix's table over K and η, with every number of the paper's and every number of ours."""
    return tables.synthetic_gradients(table_rows(plan.published()))


def beside_published(mine: Sequence[Record], found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """Return the test accuracies in percent of a notebook's own runs, with the published ones beside them.

    Args:
        mine: the notebook's own runs.
        found: the published runs by setting.
    """
    rows = []
    for record in mine:
        kind, shots, K, eta = plan.key(record)
        row = {"method": kind, "trained on": f"{shots}-shot", "K": K, "η": f"{eta:g}" if K else "–"}
        row |= {f"tested {n}-shot": record.metrics[f"best/{n}shot"] for n in TESTED}
        if published := found.get((kind, shots, K, eta)):
            row |= {f"published, tested {n}-shot": sib_score(published, shots=n).mean for n in TESTED}
        rows.append(row)
    return pd.DataFrame(rows).set_index(["method", "trained on", "K", "η"])


def gains(found: Mapping[Key, Sequence[Record]], printed: pd.DataFrame) -> pd.DataFrame:
    """Return how many points K = 3 gains over K = 0, trained on one shot: a row a method and test, a column for each η.

    A cell has the paper's gain, then ours with its 95 % interval over test tasks and seeds.

    Args:
        found: the published runs by setting.
        printed: the rows of `table` that have a number of the paper's.
    """
    rows = {}
    for kind in ("inductive SIB", "SIB"):
        start = found[kind, 1, 0, RATE]
        for tested in TESTED:
            theirs = printed.query("variant == @kind and trained_shots == 1 and tested_shots == @tested")
            theirs = theirs.set_index(["K", "eta"])["paper"]
            row = rows[kind, f"{tested}-shot"] = {}
            for eta in sorted(ETAS):
                ours = _signed(gain(start, found[kind, 1, 3, eta], tested))
                row[f"η = {eta:g}"] = f"{theirs[3, eta] - theirs.xs(0).iloc[0]:+.1f} / {ours}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["method", "tested on"])


def _signed(score: Score) -> str:
    """Return a gain with its sign and its interval, such as "+10.35 ± 0.22"."""
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f}"


def validation(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """Return the accuracy on validation classes in percent, of SIB trained on one shot: a row a K, a column for each η.

    Args:
        found: the published runs by setting. The seeds of a setting are averaged.
    """
    chosen = {
        (K, eta): sum(record.metrics["validation"] for record in records) / len(records)
        for (kind, shots, K, eta), records in found.items()
        if (kind, shots) == ("SIB", 1) and K
    }
    return pd.Series(chosen).rename_axis(["K", "η"]).unstack()
