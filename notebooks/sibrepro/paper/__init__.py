"""The paper's printed tables as data, in the paper's order: one row a number, in percent.

Every `value` and its 95 % interval `ci95` stands in a CSV file beside this one as printed; NaN where the paper prints
none. `notes` says what a reader of the numbers should know and the tables do not say.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import yaml

FOLDER = Path(__file__).parent
WHOLE = ("K", "n", "tested", "shots", "trained_shots", "tested_shots")  # whole numbers, perhaps missing


def few_shot() -> pd.DataFrame:
    """Table 1, accuracy on 5-way tasks of test classes; dashes are kept as NaN: 26 methods, 104 rows."""
    return _table("few_shot")


def synthetic_gradients() -> pd.DataFrame:
    """The appendix's table "importance of synthetic gradients": what K and eta do, 78 rows."""
    return _table("synthetic_gradients")


def gain_of_three_steps(shots: int) -> float:
    """Return what three steps add to none, in points, trained and tested on the same shots, at eta = 1e-3."""
    rows = synthetic_gradients().query("variant == 'SIB' and trained_shots == tested_shots == @shots")
    three, none = rows.query("K == 3 and eta == 1e-3"), rows.query("K == 0")
    return three["value"].item() - none["value"].item()


def query_size() -> pd.DataFrame:
    """The appendix's table "varying the size of the query set", 24 rows; K, eta, `tested` are inferred, see `notes`."""
    return _table("query_size")


def pacs() -> pd.DataFrame:
    """The appendix's table of multi-source domain adaptation; `target` is a domain or "average", 20 rows."""
    return _table("pacs")


def setup() -> pd.DataFrame:
    """The facts of section 5.1 on how the few-shot numbers were made."""
    return pd.read_csv(FOLDER / "setup.csv", dtype=str)


def given() -> pd.DataFrame:
    """The table "setup of few-shot learning": what of a task the model is given, True or False."""
    return pd.read_csv(FOLDER / "given.csv", index_col="phase")


def literature() -> pd.DataFrame:
    """What publications print for the rivals that we measure, 5-way, in percent.

    It says what to expect, not what to match: there the network is trained with the method, or is far larger, or both.
    `source` is where the number was read, which may quote the method's own publication.
    """
    return pd.read_csv(FOLDER / "literature.csv")


def notes(name: str) -> list[str]:
    return yaml.safe_load((FOLDER / "notes.yaml").read_text(encoding="utf-8"))[name]


def _table(name: str) -> pd.DataFrame:
    table = pd.read_csv(FOLDER / f"{name}.csv")
    return table.astype({column: "Int64" for column in WHOLE if column in table})
