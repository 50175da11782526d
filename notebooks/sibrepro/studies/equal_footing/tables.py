"""The tables of notebook 07, made from published runs.

All of them take the runs by (method, training tasks, shots), as `plan.published` returns them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.rivals import HEADS
from sibrepro.statistics import Score, metric, over_seeds, paired, right
from sibrepro.studies.equal_footing.experiment import QUERIES, SHAPES, SIBS, UNTRAINED
from sibrepro.studies.equal_footing.plan import Key, published

Found = Mapping[Key, Sequence[Record]]
# What a method's name gets added if it was trained on one kind of tasks only.
TASKS = {"": "", "mixture": "", "balanced": ", balanced training", "dirichlet2": ", unbalanced training"}
RIVALS = UNTRAINED | HEADS
KINDS = {"balanced": "balanced", "dirichlet2": "Dirichlet(2)"}  # the kinds of test queries, as readers see them


def title(method: str, tasks: str = "") -> str:
    """Return a method's name for tables.

    Args:
        method: a key of `SIBS`, `HEADS` or `UNTRAINED`.
        tasks: its training tasks, a key of `TASKS`. Names of balanced and unbalanced training say so.
    """
    name = SIBS[method] if method in SIBS else RIVALS[method].title
    return name + TASKS[tasks]


def score(records: Sequence[Record], queries: str) -> Score:
    """Return a method's accuracy in percent over all its seeds, on one kind of test queries."""
    return over_seeds(right(records, queries), _queries_per_task(records))


def comparison(found: Found) -> pd.DataFrame:
    """Return the accuracy and the speed of every method, a row for each number of shots and kind of queries.

    "ours" is the accuracy in percent with its 95 % interval "ours_ci95", "tasks_per_second" the speed of inference,
    averaged over seeds. "kind" tells SIBs from rivals. Every SIB is trained, and is transductive.
    """
    rows = []
    for (method, tasks, shots), records in found.items():
        params, rival = records[0].params, RIVALS.get(method)
        for queries in QUERIES:
            accuracy = score(records, queries)
            row = {
                "dataset": params["dataset"],
                "backbone": params["backbone"],
                "method": title(method, tasks),
                "kind": "rival" if rival else "sib",
                "transductive": rival.transductive if rival else True,
                "trained": rival.trained if rival else True,
                "shots": shots,
                "queries": queries,
                "ours": accuracy.mean,
                "ours_ci95": accuracy.ci95,
                "episodes": params["test_episodes"],
                "seeds": len(records),
                "tasks_per_second": float(np.mean([record.metrics["tasks_per_second"] for record in records])),
                "runs": named(records),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def best(found: Found, shots: int) -> str:
    """Return the SIB with the highest accuracy on validation classes, or "" if there is none.

    Only SIBs that were trained on the mixture of both kinds of tasks take part, and of these only the ones with the
    most seeds, so that no lucky single seed is chosen.
    """
    candidates = {}
    for (method, tasks, number), records in found.items():
        if method in SIBS and tasks == "mixture" and number == shots:
            validation = np.mean([record.metrics["validation"] for record in records])
            candidates[method] = (len(records), validation)
    return max(candidates, default="", key=candidates.get)


def differences(found: Found, sib: str = "") -> pd.DataFrame:
    """Return by how much a SIB beats each rival on the same tasks, in percentage points.

    Args:
        found: the runs to compare.
        sib: the SIB to compare with, a key of `SIBS`. By default the best one at each number of shots. In both cases
            it was trained on the mixture, so one set of weights answers both kinds of queries.
    """
    rows = []
    for (method, tasks, shots), records in found.items():
        ours = found.get((sib or best(found, shots), "mixture", shots))
        if not ours or method in SIBS:
            continue
        for queries in QUERIES:
            gain = _gain(ours, records, queries, _queries_per_task(records))
            name = title(method, tasks)
            rows.append([name, shots, queries, *gain])
    return pd.DataFrame(rows, columns=["method", "shots", "queries", "gain", "ci95"])


@functools.cache
def _read_once() -> Found:
    """Return the published runs. They are looked up once for all rows of a table."""
    return published()


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: those of the best SIB, then those of the rival."""
    found, shots = _read_once(), row["shots"]
    records = list(found[best(found, shots), "mixture", shots])
    for (method, tasks, number), rival in found.items():
        if method not in SIBS and title(method, tasks) == row["method"] and number == shots:
            records += rival
    return records


def shapes(found: Found) -> pd.DataFrame:
    """Return accuracies on tasks with other numbers of ways and queries, and what the best SIB gains over each rival.

    Gains are differences on the same tasks, over seeds. A SIB's own rows have none.
    """
    rows = []
    for (method, tasks, shots), records in found.items():
        sib = found.get((best(found, shots), "mixture", shots))
        for (ways, queries), kind in itertools.product(SHAPES, QUERIES):
            array, per_task = f"{ways}way/{queries}each/{kind}", ways * queries
            ours, gain = over_seeds(right(records, array), per_task), (np.nan, np.nan)
            if sib and method not in SIBS:
                gain = _gain(sib, records, array, per_task)
            rows.append([title(method, tasks), shots, ways, queries, kind, *ours, *gain, named(records)])
    columns = "method shots ways queries_each queries ours ours_ci95 gain ci95 runs".split()
    return pd.DataFrame(rows, columns=columns)


def this_run(records: Sequence[Record]) -> pd.DataFrame:
    """Return the accuracy of each run on both kinds of queries, as texts for the notebook."""
    rows = []
    for record in records:
        accuracies = {KINDS[kind]: f"{metric(record, kind)} %" for kind in QUERIES}
        rows.append({"method": title(record.params["method"]), "shots": record.params["shots"], **accuracies})
    return pd.DataFrame(rows).set_index(["shots", "method"])


def accuracies_by_method(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange `comparison` for reading: a row a method, a column for each number of shots and kind of queries."""
    groups = table["transductive"].map({True: "transductive", False: "inductive"}).mask(table["kind"] == "sib", "SIB")
    learned = table["trained"].map({True: "meta-trained", False: "learns nothing"})
    texts = [f"{mean:.2f} ± {ci95:.2f}" for mean, ci95 in zip(table["ours"], table["ours_ci95"], strict=True)]
    return _by_method(table.assign(group=groups, training=learned, text=texts), ["group", "training", "method"])


def gains_by_method(gains: pd.DataFrame) -> pd.DataFrame:
    """Arrange `differences` for reading, as `accuracies_by_method` does."""
    texts = [f"{gain:+.2f} ± {ci95:.2f}" for gain, ci95 in zip(gains["gain"], gains["ci95"], strict=True)]
    return _by_method(gains.assign(text=texts), ["method"])


def shapes_by_method(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange `shapes` for reading: accuracies, and in brackets what the best SIB gains over a rival."""
    gains = zip(table["gain"], table["ci95"], strict=True)
    texts = ["" if np.isnan(gain) else f" ({gain:+.1f} ± {ci95:.1f})" for gain, ci95 in gains]
    texts = [f"{value:.1f}{text}" for value, text in zip(table["ours"], texts, strict=True)]
    columns = ["queries", "ways", "queries per class"]
    named = table.assign(text=texts, queries=table["queries"].map(KINDS))
    named = named.rename(columns={"queries_each": "queries per class"})
    return named.pivot(index=["shots", "method"], columns=columns, values="text").fillna("")


def ahead(gains: pd.DataFrame) -> list[str]:
    """Say for each number of shots and kind of queries which rivals beat the SIB, given the table `differences`."""
    lines = []
    for (shots, queries), part in gains.groupby(["shots", "queries"]):
        better = sorted(part[part["gain"] + part["ci95"] < 0]["method"])
        lines.append(f"{shots}-shot, {KINDS[queries]} queries: better than the SIB: {', '.join(better) or 'none'}")
    return lines


def _by_method(table: pd.DataFrame, index: list[str]) -> pd.DataFrame:
    """Spread the column "text" over a column for each number of shots and kind of queries."""
    named = table.assign(queries=table["queries"].map(KINDS), shots=table["shots"].map("{}-shot".format))
    return named.pivot(index=index, columns=["shots", "queries"], values="text").fillna("")


def _gain(ours: Sequence[Record], theirs: Sequence[Record], array: str, queries: int) -> Score:
    """Return the accuracy of `ours` minus that of `theirs` on the same tasks.

    If both have several seeds, as many of each count as both have. A method that learns nothing has one run, which is
    compared with all seeds of the other.
    """
    seeds = min(len(ours), len(theirs))
    if seeds > 1:
        ours, theirs = ours[:seeds], theirs[:seeds]
    return paired(right(theirs, array), right(ours, array), queries)


def _queries_per_task(records: Sequence[Record]) -> int:
    """Return the number of queries in one test task, of all classes together."""
    params = records[0].params
    return params["ways"] * params["queries"]
