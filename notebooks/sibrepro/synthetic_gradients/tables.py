"""The tables of notebook 04, as data frames made of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.facts.experiment import named
from sibrepro.few_shot.plan import queries
from sibrepro.statistics import over_seeds, right
from sibrepro.synthetic_gradients.plan import TESTED, Key


def table_rows(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """For `tables.synthetic_gradients`: one row for each setting and number of shots in testing, seeds together."""
    rows = []
    for (kind, shots, K, eta), records in found.items():
        p = records[0].params
        for tested in TESTED:
            score = over_seeds(right(records, f"best/{tested}shot"), queries(records[0]))
            rows.append(
                {
                    **{"dataset": p["dataset"], "backbone": p["backbone"], "variant": kind, "K": K, "eta": eta},
                    **{"trained_shots": shots, "tested_shots": tested, "ours": score.mean, "ours_ci95": score.ci95},
                    **{"episodes": p["test_episodes"], "seeds": len(records), "steps": p["steps"]},
                    "run": named(records),
                }
            )
    columns = [*tables.SYNTHETIC_GRADIENTS, *tables.OURS, "episodes", "seeds", "steps", "run"]
    return pd.DataFrame(rows, columns=columns)


def validation_table(found: Mapping[Key, Sequence[Record]], shots: int = 1) -> pd.DataFrame:
    """Best accuracy on validation classes (percent, seeds averaged) over K and eta, of transductive SIB."""
    scores = {
        (K, eta): sum(r.metrics["validation"] for r in records) / len(records)
        for (kind, trained, K, eta), records in found.items()
        if (kind, trained) == ("SIB", shots) and K
    }
    return pd.Series(scores, dtype=float).rename_axis(["K", "η"]).unstack()
