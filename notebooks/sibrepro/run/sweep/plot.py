"""Any metric of a sweep against any of its parameters, faceted by others."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from sibcore.files import write_atomically
from sibrepro import plots
from sibrepro.run.sweep import table as tables


def plot(table: pd.DataFrame, x: str, y: str, **facets: str | None) -> sns.FacetGrid:
    """`y` over `x`; `facets` names the parameters for `hue`, `style`, `col` and `row`.

    Points that differ in other parameters only, such as the seed, are averaged, with a 95 % bootstrap interval; the
    figure says over what.
    """
    plots.style()
    mpl.rcParams["figure.constrained_layout.use"] = False  # seaborn lays out its own grids
    x, y = tables.column(table, x), tables.column(table, y)
    facets = {place: tables.column(table, name) for place, name in facets.items() if name}
    if not pd.api.types.is_numeric_dtype(table[y]):
        raise ValueError(f"{y} is not a number, so it cannot be drawn")
    data = table[table["point_status"] == "done"].dropna(subset=[y]).sort_values(x)
    if data.empty:
        raise ValueError(f"no finished point has a value of {y}")
    over = [name for name in tables.varied(data) if name not in (x, *facets.values())]
    if pd.api.types.is_bool_dtype(data[x]) or not pd.api.types.is_numeric_dtype(data[x]):
        data = data.assign(**{x: data[x].astype(str)})
    orders = {name: list(map(str, sorted(data[name].unique(), key=_order))) for name in facets.values()}
    data = data.assign(**{name: data[name].astype(str) for name in orders})
    grid = sns.relplot(
        data=data, x=x, y=y, **facets, **{f"{place}_order": orders[name] for place, name in facets.items()},
        kind="line", marker="o", errorbar=("ci", 95), seed=0, err_style="bars", height=3.5, aspect=1.2,
    )  # fmt: skip
    if pd.api.types.is_numeric_dtype(data[x]):
        if data[x].min() > 0 and data[x].max() / data[x].min() >= 100:
            grid.set(xscale="log")
        else:
            grid.set(xticks=sorted(data[x].unique())) if data[x].nunique() <= 8 else None
    if over:
        grid.figure.supxlabel(f"mean over {', '.join(over)}, 95 % interval", fontsize="x-small", x=0.99, ha="right")
    return grid


def save(grid: sns.FacetGrid, file: Path) -> Path:
    """Write the figure; the file's ending says which kind."""
    buffer = io.BytesIO()
    grid.figure.savefig(buffer, format=file.suffix.lstrip(".") or "png", bbox_inches="tight")
    plt.close(grid.figure)
    write_atomically(file, buffer.getvalue())
    return file


def default_file(folder: Path, x: str, y: str, **facets: str | None) -> Path:
    """A name that says what is drawn, so that another plot does not replace it."""
    by = "".join(f"_{place}-{name}" for place, name in facets.items() if name)
    return folder / "plots" / f"{re.sub(r'[^A-Za-z0-9_.=-]+', '-', f'{y}_over_{x}{by}')}.png"


def _order(value: object) -> tuple[bool, object]:
    return isinstance(value, str), value
