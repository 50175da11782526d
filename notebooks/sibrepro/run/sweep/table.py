"""A sweep as a tidy table: one row a point, its parameters, its metrics and how it went."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd

from sibcore.files import write_atomically
from sibrepro.run.sweep.point import read_results

ABOUT = ["point", "point_status", "point_seconds", "point_error"]


def collect(folder: Path) -> pd.DataFrame:
    """The table of all finished points of a sweep. Its attribute `parameters` lists the columns that are parameters."""
    results = read_results(folder)
    if not results:
        raise ValueError(f"{folder} holds no finished point of a sweep")
    parameters = list(dict.fromkeys(name for result in results for name in result.parameters))
    rows = []
    for result in results:
        about = dict(zip(ABOUT, (result.point, result.status, result.seconds, result.error), strict=True))
        taken = {f"{name} (metric)" if name in parameters else name: v for name, v in result.metrics.items()}
        rows.append({**about, **{name: plain(value) for name, value in result.parameters.items()}, **taken})
    metrics = list(dict.fromkeys(name for row in rows for name in row if name not in (*ABOUT, *parameters)))
    table = pd.DataFrame(rows, columns=["point", *parameters, *metrics, *ABOUT[1:]])
    table.attrs["parameters"] = parameters
    return table


def write(folder: Path) -> pd.DataFrame:
    """Collect the table and write it as `table.csv` and `table.parquet`."""
    table = collect(folder)
    write_atomically(folder / "table.csv", table.to_csv(index=False).encode())
    buffer = io.BytesIO()
    _uniform(table).to_parquet(buffer, index=False)
    write_atomically(folder / "table.parquet", buffer.getvalue())
    return table


def column(table: pd.DataFrame, name: str) -> str:
    """The column called `name`, or the one that ends with it: `last/test` finds `few_shot.last/test`."""
    found = [name] if name in table else [c for c in table if c.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    wrong = f"fits {', '.join(found)}" if found else "is no column of the table"
    raise ValueError(f"{name} {wrong}; there are\n  " + "\n  ".join(table.columns))


def varied(table: pd.DataFrame) -> list[str]:
    """The parameters that differ between points."""
    return [name for name in table.attrs["parameters"] if table[name].nunique(dropna=False) > 1]


def plain(value: object) -> object:
    """A list or mapping as JSON text, for tables hold scalars."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _uniform(table: pd.DataFrame) -> pd.DataFrame:
    """Parquet wants one type a column: where a parameter is now a number and now a text, all of it becomes text."""
    mixed = [c for c in table if table[c].dtype == object and table[c].dropna().map(type).nunique() > 1]
    return table.assign(**{c: table[c].map(str, na_action="ignore") for c in mixed})
