"""`sib sweep table` and `sib sweep plot`: a sweep as a table with a row for each point, and plots of its metrics."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns

from sibcore.files import write_atomically
from sibrepro import plots
from sibrepro.run.sweep.point import read_all


def collect(folder: Path) -> pd.DataFrame:
    """Return a table of the finished points of a sweep. `table.attrs["parameters"]` lists the columns of parameters."""
    results = sorted(read_all(folder).values(), key=lambda result: result.point)
    if not results:
        raise ValueError(f"{folder} has no finished point of a sweep")
    parameters = pd.DataFrame([result.parameters for result in results])
    parameters = parameters.map(lambda value: json.dumps(value) if isinstance(value, (list, dict)) else value)
    metrics = pd.DataFrame([result.metrics for result in results])
    metrics.columns = [f"{name} (metric)" if name in parameters else name for name in metrics]
    about = pd.DataFrame({"status": r.status, "seconds": r.seconds, "error": r.error} for r in results)
    table = pd.concat([parameters, metrics, about.add_prefix("point_")], axis=1)
    table.insert(0, "point", [result.point for result in results])
    table.attrs["parameters"] = list(parameters)
    return table


def write(folder: Path) -> None:
    """Collect the table and write it as `table.csv` and `table.parquet`."""
    table = collect(folder)
    write_atomically(folder / "table.csv", table.to_csv(index=False).encode())
    # A column of Parquet has one type. A parameter that is a number at some points and a text at others becomes text.
    mixed = [name for name in table if table[name].dropna().map(type).nunique() > 1]
    uniform = table.assign(**{name: table[name].map(str, na_action="ignore") for name in mixed})
    write_atomically(folder / "table.parquet", uniform.to_parquet(index=False))
    print(f"{len(table)} points in {folder / 'table.csv'} and table.parquet")


def column(table: pd.DataFrame, name: str) -> str:
    """Return the column called `name`, or the only one that ends with it, as few_shot.last/test does with last/test."""
    found = [name] if name in table else [c for c in table if c.endswith(f".{name}")]
    if len(found) != 1:
        wrong = f"could be any of {', '.join(found)}" if found else "is not a column of the table"
        raise ValueError(f"{name} {wrong}. The columns are\n  " + "\n  ".join(table.columns))
    return found[0]


def draw(table: pd.DataFrame, x: str, y: str, **facets: str) -> sns.FacetGrid:
    """Draw a metric over a parameter.

    If other parameters vary too, such as the seed, the figure shows the mean over them with a 95 % bootstrap interval,
    and says so.

    Args:
        table: the table of a sweep, see `collect`.
        x: the parameter.
        y: the metric.
        facets: the parameters that seaborn's `hue`, `style`, `col` and `row` stand for.
    """
    plots.style()
    mpl.rcParams["figure.constrained_layout.use"] = False  # seaborn lays out its own grids
    x, y = column(table, x), column(table, y)
    facets = {place: column(table, name) for place, name in facets.items()}
    data = table[table["point_status"] == "done"].dropna(subset=[y]).sort_values(x)
    if data.empty or not pd.api.types.is_numeric_dtype(data[y]):
        raise ValueError(f"{y} is not a number of any finished point, so it cannot be drawn")
    shown = [x, *facets.values()]
    others = [name for name in table.attrs["parameters"] if name not in shown]
    over = [name for name in others if data[name].nunique(dropna=False) > 1]
    data = data.astype(dict.fromkeys(facets.values(), "category"))  # so that the legend has the order of numbers
    is_number = data[x].dtype.kind in "if"
    if not is_number:
        data[x] = data[x].astype(str)
    lines = {"kind": "line", "marker": "o", "err_style": "bars", "errorbar": ("ci", 95), "seed": 0}
    grid = sns.relplot(data=data, x=x, y=y, **facets, **lines, height=3.5, aspect=1.2)
    if is_number and data[x].min() > 0 and data[x].max() / data[x].min() >= 100:
        grid.set(xscale="log")
    if over:
        grid.figure.supxlabel(f"mean over {', '.join(over)}, 95 % interval", fontsize="x-small", x=0.99, ha="right")
    return grid


def main(options: argparse.Namespace) -> int:
    """Write the table of a sweep again."""
    write(options.folder)
    return 0


def plot(options: argparse.Namespace) -> int:
    """Draw a metric over a parameter and write the figure."""
    facets = {place: name for place in ("hue", "style", "col", "row") if (name := getattr(options, place))}
    drawn = "_".join([f"{options.y}_over_{options.x}", *map("-".join, facets.items())])
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "-", drawn)
    file = options.out or options.folder / "plots" / f"{name}.png"
    grid = draw(collect(options.folder), options.x, options.y, **facets)
    file.parent.mkdir(parents=True, exist_ok=True)
    grid.figure.savefig(file, bbox_inches="tight")
    print(f"wrote {file}")
    return 0
