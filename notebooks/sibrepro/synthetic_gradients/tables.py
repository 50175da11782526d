"""The tables of notebook 04, as data frames made of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from sibrepro import tables
from sibrepro.facts import Record
from sibrepro.few_shot.plan import sib_score
from sibrepro.synthetic_gradients.plan import TESTED, Key


def table_rows(found: Mapping[Key, Sequence[Record]]) -> pd.DataFrame:
    """For `tables.synthetic_gradients`: one row for each setting and number of shots in testing, seeds together."""
    rows = []
    for (kind, shots, K, eta), records in found.items():
        setting = {"variant": kind, "trained_shots": shots, "K": K, "eta": eta}
        rows += [tables.row(records, sib_score(records, shots=n), tested_shots=n, **setting) for n in TESTED]
    return pd.DataFrame(rows)


def validation_table(found: Mapping[Key, Sequence[Record]], shots: int = 1) -> pd.DataFrame:
    """Best accuracy on validation classes (percent, seeds averaged) over K and eta, of transductive SIB."""
    scores = {
        (K, eta): sum(r.metrics["validation"] for r in records) / len(records)
        for (kind, trained, K, eta), records in found.items()
        if (kind, trained) == ("SIB", shots) and K
    }
    return pd.Series(scores, dtype=float).rename_axis(["K", "η"]).unstack()
