"""The paper's printed tables as data, in the paper's order, with one row for each number.

Each table is a CSV file in this folder. Accuracies (`value`) and their 95 % intervals (`ci95`) are in percent, as
printed, and NaN where the paper prints none. `notes` returns remarks on the tables.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import yaml

FOLDER = Path(__file__).parent
WHOLE = ("K", "n", "tested", "shots", "trained_shots", "tested_shots")  # columns of whole numbers, perhaps missing


def few_shot() -> pd.DataFrame:
    """Return Table 1, the accuracies on 5-way tasks of test classes: 26 methods, 104 rows. Dashes are NaN."""
    return _table("few_shot")


def synthetic_gradients() -> pd.DataFrame:
    """Return the appendix's table "importance of synthetic gradients", the effect of K and eta: 78 rows."""
    return _table("synthetic_gradients")


def gain_of_three_steps(shots: int) -> float:
    """Return the printed gain of K = 3 over K = 0 at eta = 1e-3, in points, trained and tested on the same shots."""
    rows = synthetic_gradients().query("variant == 'SIB' and trained_shots == tested_shots == @shots")
    three, none = rows.query("K == 3 and eta == 1e-3"), rows.query("K == 0")
    return three["value"].item() - none["value"].item()


def query_size() -> pd.DataFrame:
    """Return the appendix's table "varying the size of the query set": 24 rows.

    The columns K, eta and `tested` are not printed. They are inferred (see `notes`).
    """
    return _table("query_size")


def pacs() -> pd.DataFrame:
    """Return the appendix's table of multi-source domain adaptation: 20 rows.

    `target` is a domain, or "average" for the mean over domains.
    """
    return _table("pacs")


def setup() -> pd.DataFrame:
    """Return the experimental setup of the few-shot numbers, from section 5.1."""
    return pd.read_csv(FOLDER / "setup.csv", dtype=str)


def given() -> pd.DataFrame:
    """Return the table "setup of few-shot learning": which parts of a task the model is given, True or False."""
    return pd.read_csv(FOLDER / "given.csv", index_col="phase")


def literature() -> pd.DataFrame:
    """Return the accuracies that other publications print for the rivals measured here, 5-way, in percent.

    They are a guide, not numbers to reproduce: these publications train the network together with the method, or use a
    far larger one, or both. `source` is the publication that we read the number in. It may quote the method's own.
    """
    return pd.read_csv(FOLDER / "literature.csv")


def notes(name: str) -> list[str]:
    """Return remarks on a table, such as "pacs": what a reader cannot tell from the numbers alone."""
    return yaml.safe_load((FOLDER / "notes.yaml").read_text(encoding="utf-8"))[name]


def _table(name: str) -> pd.DataFrame:
    """Read a table of accuracies."""
    table = pd.read_csv(FOLDER / f"{name}.csv")
    return table.astype({column: "Int64" for column in WHOLE if column in table})
