"""The tables of notebook 07, made from published runs.

All of them take the runs by (method, training tasks, shots), as `plan.published` returns them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.rivals import HEADS
from sibrepro.statistics import Score, over_seeds, paired, right
from sibrepro.studies.equal_footing.experiment import QUERIES, SHAPES, SIBS, UNTRAINED
from sibrepro.studies.equal_footing.plan import Key, published

Found = Mapping[Key, Sequence[Record]]
# What a method's name gets added if it was trained on one kind of tasks only.
TASKS = {"": "", "mixture": "", "balanced": ", balanced training", "dirichlet2": ", unbalanced training"}
RIVALS = UNTRAINED | HEADS


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


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: those of the best SIB, then those of the rival."""
    found, shots = published(), row["shots"]
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


def cite(method: str, shots: str, queries: str) -> float:
    """Return an accuracy for the README: of a method, at a number of shots, on a kind of test queries."""
    found = published()
    records = found.get((method, "mixture", int(shots))) or found[method, "", int(shots)]
    return score(records, queries).mean


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
