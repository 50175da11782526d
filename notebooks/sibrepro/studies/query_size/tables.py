"""The tables of notebook 06, as data frames made of runs.

A setting is a backbone, a number of shots, and the number n of queries per class in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from sibrepro import paper, tables
from sibrepro.facts import Record
from sibrepro.statistics import Score, over_seeds, paired, right
from sibrepro.studies.query_size.experiment import USUAL
from sibrepro.studies.query_size.plan import BACKBONES, SHOTS, Key, published

PAPERS = {"val": "validation", "test": "test"}  # How the paper's table names the splits.
NETWORKS = {"conv4-64": "Conv-4-64", "conv4-128": "Conv-4-128"}
BEST, MOST = 10, 45  # The n at which the paper's accuracy peaks, and the largest n.
WITH_USUAL, LONGER, WITH_OWN = f"tested with {USUAL}", f"tested with {USUAL}, steps as trained", "tested with n"
Found = Mapping[Key, Sequence[Record]]  # The runs of a setting, one of each seed.


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


def table_rows(found: Found) -> pd.DataFrame:
    """Return rows for `tables.query_size`: one for each setting, split and number of queries in testing.

    Args:
        found: runs of `QUERY_SIZE` by setting.
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


def own_runs(mine: Sequence[Record], longer: Sequence[Record]) -> pd.DataFrame:
    """Return the test accuracies in percent of a notebook's own runs.

    Args:
        mine: runs of `QUERY_SIZE`.
        longer: the runs of `RESCALED` of the same trainings, in the same order.
    """
    rows = []
    for record, same in zip(mine, longer, strict=True):
        p, metrics = record.params, record.metrics
        rows.append(
            {
                "backbone": NETWORKS.get(p["backbone"], p["backbone"]),
                "shots": p["shots"],
                "n in training": p["queries"],
                WITH_USUAL: metrics["test/usual"],
                LONGER: same.metrics["test"],
                WITH_OWN: metrics["test/own"],
            }
        )
    return pd.DataFrame(rows).set_index(["backbone", "shots", "n in training"])


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Return our test accuracies in percent with 95 % intervals: a column for each n in training.

    Args:
        table: what `table` returns.
    """
    ours = table[table["ours"].notna() & (table["split"] == "test")]
    twice = ours[(ours["n"] == USUAL)].assign(how=WITH_OWN)  # With n = 15 both tests are the same.
    ours = ours.assign(how=[WITH_USUAL if tested == USUAL else WITH_OWN for tested in ours["tested"]])
    shown = pd.concat([ours, twice])
    shown = shown.assign(
        cell=[f"{value:.1f} ± {ci95:.1f}" for value, ci95 in zip(shown["ours"], shown["ours_ci95"], strict=True)],
        dataset=shown["dataset"].replace(tables.DATASETS),
        backbone=shown["backbone"].replace(NETWORKS),
    )
    return shown.pivot(index=["dataset", "backbone", "shots", "how"], columns="n", values="cell").rename_axis(
        index={"how": ""}
    )


def from_best_to_most(by_dataset: Mapping[str, tuple[Found, Found]]) -> pd.DataFrame:
    """Return what changes from n = 10 to n = 45 queries per class in training: a row for each backbone and shots.

    Differences are in points on the same test tasks. Tested with n the tasks differ, so there the accuracies with
    n = 10 and with n = 45 are shown instead.

    Args:
        by_dataset: for each image set the runs of `QUERY_SIZE` and those of `RESCALED`, by setting.
    """
    printed = paper.query_size().query("split == 'test'").set_index(["shots", "n"])["value"]
    rows = {}
    for dataset, (found, longer) in by_dataset.items():
        for backbone, shots in sorted({key[:2] for key in found}):
            best, most, same = _compared(found, longer, backbone, shots)
            if best and most and same:
                first, last = (score(records, "test", "own") for records in (best, most))
                name = f"{tables.DATASETS.get(dataset, dataset)}, {NETWORKS.get(backbone, backbone)}, {shots}-shot"
                rows[name] = {
                    "paper (mini-ImageNet)": f"{printed[shots, MOST] - printed[shots, BEST]:+.1f}",
                    WITH_USUAL: _signed(difference(best, most)),
                    LONGER: _signed(difference(best, same)),
                    WITH_OWN: f"{first} → {last} %",
                }
    return pd.DataFrame.from_dict(rows, orient="index")


def verdicts(found: Found, longer: Found, backbone: str) -> pd.DataFrame:
    """Return yes or no for what training with n = 45 changes against n = 10, at the full protocol: a row a shots.

    Args:
        found: runs of `QUERY_SIZE` by setting.
        longer: runs of `RESCALED` by setting.
        backbone: the backbone that is reported.
    """
    rows = {}
    for shots in SHOTS:
        best, most, same = _compared(found, longer, backbone, shots)
        if best and most and same and {record.params["steps"] for record in (*best, *most)} == {40_000}:
            fall, rest = difference(best, most), difference(best, same)
            rows[f"{shots}-shot"] = {
                f"worse with {USUAL}": fall.mean + fall.ci95 < 0,
                "level with steps as trained": rest.mean > -0.3,
                "better with n": score(most, "test", "own").mean > score(best, "test", "own").mean,
            }
    return pd.DataFrame.from_dict(rows, orient="index").replace({True: "yes", False: "no"})


def corollary(found: Found) -> pd.DataFrame:
    """Return the quantities of Theorem 2 and Corollary 1, averaged over seeds: a row for each setting.

    Returns:
        columns "risk", "gap" (gen(q)), "gap_ci95", "sigma" (of the average task), "sigma_worst" and "sigma_bound" (of
        Hoeffding); the coefficient |d| / 2σ² with the first σ and, as "coefficient_sure", with the last; and "term" and
        "term_sure", these coefficients times gen(q)², which Theorem 2 bounds by I(w; d | t).
    """
    setting, measured = ["backbone", "shots", "n"], ["risk", "gap", "gap_ci95", "sigma", "sigma_worst", "sigma_bound"]
    rows = [
        dict(zip(setting, key, strict=True)) | {name: record.metrics[name] for name in measured}
        for key, records in found.items()
        for record in records
    ]
    terms = pd.DataFrame(rows).groupby(setting, sort=False, as_index=False).mean()
    for name, sigma in {"": "sigma", "_sure": "sigma_bound"}.items():
        terms[f"coefficient{name}"] = 5 * terms["n"] / (2 * terms[sigma] ** 2)
        terms[f"term{name}"] = terms[f"coefficient{name}"] * terms["gap"] ** 2
    return terms


def corollary_in_short(terms: pd.DataFrame, sizes: Sequence[int] = (3, USUAL, MOST)) -> pd.DataFrame:
    """Return some rows of `corollary` for reading, rounded.

    Args:
        terms: what `corollary` returns.
        sizes: the values of n that are shown.
    """
    some = terms[terms["n"].isin(sizes)].sort_values(["backbone", "shots", "n"], ascending=[False, True, True])
    return pd.DataFrame(
        {
            "backbone": some["backbone"].replace(NETWORKS),
            "shots": some["shots"],
            "n": some["n"],
            "risk (nats)": some["risk"].map("{:.2f}".format),
            "gen(q) (nats)": [f"{g:+.3f} ± {c:.3f}" for g, c in zip(some["gap"], some["gap_ci95"], strict=True)],
            "σ, average task": some["sigma"].map("{:.2f}".format),
            "σ, worst task": some["sigma_worst"].map("{:.2f}".format),
            "σ, Hoeffding": some["sigma_bound"].map("{:.1f}".format),
            "|d|/2σ² · gen(q)² (nats)": some["term"].map("{:.4f}".format),
        }
    ).set_index(["backbone", "shots", "n"])


def _compared(found: Found, longer: Found, backbone: str, shots: int) -> tuple[Sequence[Record], ...]:
    """Return the runs of n = 10, of n = 45, and of n = 45 with steps of the trained length.

    What is missing, or was not trained as long as n = 10, is empty.
    """
    best, most = (found.get((backbone, shots, n), []) for n in (BEST, MOST))
    same = longer.get((backbone, shots, MOST), [])
    if len({record.params["steps"] for record in (*best, *most)}) != 1:
        return best, [], []
    return best, most, same


def _signed(score: Score) -> str:
    """Return a difference with its sign and its interval, such as "-1.50 ± 0.12"."""
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f}"
