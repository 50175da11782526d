"""The figures of notebook 04, drawn from run records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

if TYPE_CHECKING:
    pass

COLUMNS = [
    (kind, trained, tested) for kind, trained in (("inductive SIB", 1), ("SIB", 1), ("SIB", 5)) for tested in (1, 5)
]


def heat_maps(table: pd.DataFrame) -> Figure:
    """The paper's numbers, ours, and the difference, over K and eta; `table` is of `tables.synthetic_gradients`."""
    table = table.assign(difference=table["ours"] - table["paper"])
    rows = {"paper": "paper", "ours": "ours", "difference": "ours − paper"}
    figure, axes = plt.subplots(3, len(COLUMNS), figsize=(15.5, 6.6), sharex=True, sharey=True)
    for column, (kind, trained, tested) in enumerate(COLUMNS):
        part = table.query("variant == @kind and trained_shots == @trained and tested_shots == @tested")
        start = part[part["K"] == 0].iloc[0]
        grid = part[part["K"] > 0].astype({"K": int, "eta": float})
        low, high = grid[["paper", "ours"]].min().min(), grid[["paper", "ours"]].max().max()
        for axis, (name, label) in zip(axes[:, column], rows.items(), strict=True):
            values = grid.pivot(index="K", columns="eta", values=name).sort_index(axis=1, ascending=False).astype(float)
            look = {"cmap": "viridis", "vmin": low, "vmax": high}
            if name == "difference":
                look = {"cmap": "PuOr", "center": 0, "vmin": -8, "vmax": 8}
            sns.heatmap(values, annot=True, fmt=".1f", cbar=False, ax=axis, annot_kws={"size": 9}, **look)
            axis.set(xlabel="", ylabel=f"{label}\n$K$" if column == 0 else "")
            at_start = "" if pd.isna(start[name]) else f"K = 0: {start[name]:.1f}"
            axis.set_title(at_start, fontsize=9, loc="right")
        axes[0, column].set_title(f"{kind}\ntrained {trained}-, tested {tested}-shot\n", fontsize=10, loc="left")
        axes[2, column].set_xlabel(r"$\eta$")
    for axis in axes[2]:
        axis.set_xticks(axis.get_xticks(), [f"{eta:.0e}".replace("e-0", "e-") for eta in values.columns], rotation=0)
    return figure
