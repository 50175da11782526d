"""The tables of notebook 07, as data frames made of runs."""

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
TASKS = {"": "", "mixture": "", "balanced": ", balanced training", "dirichlet2": ", unbalanced training"}


def title(method: str, tasks: str = "") -> str:
    name = SIBS[method] if method in SIBS else (UNTRAINED | HEADS)[method].title
    return name + TASKS[tasks]


def score(records: Sequence[Record], queries: str) -> Score:
    """Accuracy in percent on one kind of queries, seeds together."""
    return over_seeds(right(records, queries), _answers(records))


def comparison(found: Found) -> pd.DataFrame:
    """A row for each method, number of shots and kind of queries."""
    rows = []
    for (method, tasks, shots), records in found.items():
        p, cls = records[0].params, (UNTRAINED | HEADS).get(method)
        for queries in QUERIES:
            found_score = score(records, queries)
            rows.append(
                {"dataset": p["dataset"], "backbone": p["backbone"], "method": title(method, tasks)}
                | {"kind": "rival" if cls else "sib", "transductive": cls.transductive if cls else True}
                | {"trained": cls.trained if cls else True, "shots": shots, "queries": queries}
                | {"ours": found_score.mean, "ours_ci95": found_score.ci95}
                | {"episodes": p["test_episodes"], "seeds": len(records)}
                | {"tasks_per_second": float(np.mean([r.metrics["tasks_per_second"] for r in records]))}
                | {"runs": named(records)}
            )
    return pd.DataFrame(rows)


def best(found: Found, shots: int) -> str:
    """Of the SIBs that were trained on both kinds of tasks, the one that did best on validation classes; of those only
    that have as many seeds as any."""
    several = {m: records for (m, tasks, s), records in found.items() if (tasks, s) == ("mixture", shots) and m in SIBS}
    most = max(map(len, several.values()), default=0)
    several = {m: records for m, records in several.items() if len(records) == most}
    return max(several, default="", key=lambda m: np.mean([record.metrics["validation"] for record in several[m]]))


def differences(found: Found, sib: str = "") -> pd.DataFrame:
    """A SIB, one set of weights for both kinds of queries, by default the best, minus each rival on the same tasks."""
    rows = []
    for (method, tasks, shots), records in found.items():
        ours = found.get((sib or best(found, shots), "mixture", shots))
        for queries in QUERIES if ours and method not in SIBS else ():
            gain = _minus(ours, records, queries, _answers(records))
            names = {"method": title(method, tasks), "shots": shots, "queries": queries}
            rows.append(names | {"gain": gain.mean, "ci95": gain.ci95})
    return pd.DataFrame(rows, columns=["method", "shots", "queries", "gain", "ci95"])


def behind_difference(row: Mapping[str, Any]) -> list[Record]:
    """Return the runs behind a row of `differences`: the best SIB's and the rival's."""
    found, shots = published(), row["shots"]
    rivals = [
        record
        for (method, tasks, s), records in found.items()
        if (title(method, tasks), s) == (row["method"], shots) and method not in SIBS
        for record in records
    ]
    return [*found[best(found, shots), "mixture", shots], *rivals]


def shapes(found: Found) -> pd.DataFrame:
    """Accuracy on tasks of other shapes, and the best SIB's minus it, seeds together and on the same tasks."""
    rows = []
    for (method, tasks, shots), records in found.items():
        sib = found.get((best(found, shots), "mixture", shots))
        for (ways, queries), kind in itertools.product(SHAPES, QUERIES):
            name, answers = f"{ways}way/{queries}each/{kind}", ways * queries
            ours = over_seeds(right(records, name), answers)
            gain = _minus(sib, records, name, answers) if sib and method not in SIBS else None
            row = [title(method, tasks), shots, ways, queries, kind, ours.mean, ours.ci95]
            rows.append([*row, *((gain.mean, gain.ci95) if gain else (np.nan, np.nan)), named(records)])
    columns = "method shots ways queries_each queries ours ours_ci95 gain ci95 runs".split()
    return pd.DataFrame(rows, columns=columns)


def _minus(ours: Sequence[Record], theirs: Sequence[Record], name: str, answers: int) -> Score:
    """Paired; of two that both have seeds, as many as both have."""
    seeds = min(len(ours), len(theirs))
    first, second = (right(records[:seeds] if seeds > 1 else records, name) for records in (theirs, ours))
    return paired(first, second, answers)


def _answers(records: Sequence[Record]) -> int:
    return records[0].params["ways"] * records[0].params["queries"]


def cite(method: str, shots: str, queries: str) -> float:
    """An accuracy of ours: method, shots, kind of queries."""
    found = published()
    records = found.get((method, "mixture", int(shots))) or found[method, "", int(shots)]
    return score(records, queries).mean
