"""The table of notebook 07 about the any-way SIBs, made from published runs."""

from __future__ import annotations

import pandas as pd

from sibrepro.studies.any_way.any_way import ANY_WAY, GENERAL, SET_AWARE

# What the tests call the kinds of queries, and what readers call them. Numbers of queries per class are "few".
QUERIES = {"": "balanced", "unbalanced": "Dirichlet(1)", "lopsided": "Dirichlet(0.3)"}


def gains() -> pd.DataFrame:
    """Return what the steps gain over K = 0 in points, a row for each kind of features.

    Each number is the mean over 2 to 20 ways and over 1 and 5 shots. There is a column for each kind of queries and ξ.
    """
    rows = []
    for xi, settings in {"set-aware ξ": SET_AWARE, "equivariant ξ": GENERAL}.items():
        for test, value in ANY_WAY.published(settings).metrics.items():
            features, *shape, last = test.split("/")
            if last == "gain":
                kind = "".join(shape[2:])  # after the numbers of ways and shots
                rows.append([features, QUERIES.get(kind, "1 to 5 a class"), xi, value])
    table = pd.DataFrame(rows, columns=["features", "queries", "xi", "gain"])
    return table.pivot_table(index="features", columns=["queries", "xi"], values="gain")
