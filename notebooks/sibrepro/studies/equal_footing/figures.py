"""The figures of notebook 07, drawn from the tables and arrays of runs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sibrepro import plots
from sibrepro.plots import INK
from sibrepro.studies.equal_footing.experiment import PROBABILITIES, SHARES
from sibrepro.tables import DATASETS

# The methods that figures name in full size, by their titles in tables.
HEADLINE = {
    "SIB, set-aware ξ": "SIB, set-aware ξ",
    "SIB, the paper's ξ": "SIB, paper's ξ",
    "SIB, equivariant ξ": "SIB, equivariant ξ",
    "PT-MAP": "PT-MAP",
    "protoLP": "protoLP",
    "TIM-ADM": "TIM",
    "α-TIM": "α-TIM",
    "PADDLE": "PADDLE",
    "Soft k-means": "soft k-means",
    "LaplacianShot": "LaplacianShot",
    "Label propagation (TPN)": "label propagation",
    "Nearest centroid": "nearest centroid",
}
REST = "#9a9a9a"  # the colour of all other rivals
KINDS = {"sib": ("D", "other SIBs"), "transductive": ("o", "other transductive"), "inductive": ("^", "other inductive")}


def accuracies(table: pd.DataFrame) -> Figure:
    """Draw the accuracy of all methods on Dirichlet(2) queries against that on balanced ones, by number of shots.

    Args:
        table: the table `tables.comparison`.
    """
    figure, axes = _panels(table, height=6.6)
    named = []
    for axis, (_, part) in zip(axes, table.groupby("shots"), strict=True):
        accuracy = part.pivot(index="method", columns="queries", values="ours")
        x, y = accuracy["balanced"], accuracy["dirichlet2"]
        axis.set(xlim=(x.min() - 0.8, x.max() + 1.5), ylim=(y.min() - 0.8, y.max() + 1.5))
        axis.set(xlabel="accuracy on balanced queries (%)", ylabel="accuracy on Dirichlet(2) queries (%)")
        ends = np.array([[0, 0], [100, 100]])
        axis.plot(*ends.T, color=REST, linewidth=0.8, linestyle=":", label="equal accuracy on both", zorder=0)
        named.append((axis, _draw_methods(axis, x, y, part, required=_front(x, y)), [ends]))
    _legend(axes[-1], "lower left")
    figure.supxlabel(_caption(table), x=0.01, ha="left", fontsize=10)
    _name_methods(named)
    return figure


def speeds(table: pd.DataFrame) -> Figure:
    """Draw the mean accuracy on both kinds of queries against the speed of inference, by number of shots.

    SIBs that were trained on one kind of tasks are left out, since their inference is that of the others.

    Args:
        table: the table `tables.comparison`.
    """
    table = table[~table["method"].str.endswith("training")]
    figure, axes = _panels(table, height=5)
    named = []
    for axis, (_, part) in zip(axes, table.groupby("shots"), strict=True):
        by_method = part.groupby("method")
        x, y = by_method["tasks_per_second"].first(), by_method["ours"].mean()
        axis.set(xlim=(x.min() / 1.5, 2.2 * x.max()), ylim=(y.min() - 0.8, y.max() + 0.8), xscale="log")
        axis.set(xlabel="tasks per second, measured roughly", ylabel="mean accuracy on both kinds (%)")
        ticks = [tick for tick in (50, 100, 200, 500, 1000, 2000, 5000) if axis.get_xlim()[0] < tick]
        axis.set_xticks(ticks, labels=ticks)
        axis.set_xticks([], minor=True)
        named.append((axis, _draw_methods(axis, x, y, part), []))
    _name_methods(named)
    return figure


def _panels(table: pd.DataFrame, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each number of shots, under a title with what was tested."""
    shots = sorted(table["shots"].unique())
    figure, axes = plt.subplots(1, len(shots), figsize=(6 * len(shots), height), squeeze=False)
    for axis, number in zip(axes[0], shots, strict=True):
        axis.set_title(f"{number}-shot")
    about, widest = table.iloc[0], table["ours_ci95"].max()
    where = f"{DATASETS.get(about['dataset'], about['dataset'])}, {about['backbone'].replace('conv4', 'Conv-4')}"
    figure.suptitle(
        f"{where}: mean of {about['episodes']:,} tasks of each kind, 95 % intervals up to ±{widest:.1f} points",
        fontsize=12,
    )
    return figure, [*axes[0]]


def _front(x: pd.Series, y: pd.Series) -> set[str]:
    """Return the methods than which no other is better on both axes (the Pareto front)."""
    return {name for name in x.index if not ((x > x[name]) & (y > y[name])).any()}


def _draw_methods(
    axis: Axes, x: pd.Series, y: pd.Series, part: pd.DataFrame, required: set[str] = frozenset()
) -> tuple[list[tuple[str, float, float]], int]:
    """Draw a point for each method.

    Args:
        axis: the panel.
        x, y: the coordinates, by method.
        part: the rows of the table that tell of the methods.
        required: methods that have to be named besides those of `HEADLINE`.

    Returns:
        names and places of the methods, and how many of them, counted from the last, may go without a name.
    """
    for name, kind in _kinds(part).items():
        look = {"color": plots.colour(name), "marker": plots.marker(name), "markersize": 7.5, "zorder": 3}
        if name not in HEADLINE:
            own = {"markerfacecolor": "white"} if kind == "sib" else {"color": REST, "marker": KINDS[kind][0]}
            look |= {"zorder": 2, "markersize": 6 if kind == "sib" else 5} | own
        axis.plot(x[name], y[name], linestyle="", **look)
    first = [name for name in x.index if name in HEADLINE or name in required]
    rest = [name for name in x.index if name not in first]
    # The colour says already which xi a variant of SIB has.
    return [(HEADLINE.get(name, name.split("ξ, ")[-1]), x[name], y[name]) for name in first + rest], len(rest)


def _name_methods(named: list[tuple[Axes, tuple[list[tuple[str, float, float]], int], list[np.ndarray]]]) -> None:
    """Write the names into the panels."""
    for axis, (methods, optional), lines in named:
        names, *places = zip(*methods, strict=True)
        plots.name_points(axis, names, np.column_stack(places), lines=lines, optional=optional)


def _kinds(table: pd.DataFrame) -> dict[str, str]:
    """Return of each method which of `KINDS` it is."""
    about = table.drop_duplicates("method").set_index("method")
    rivals = about["transductive"].map({True: "transductive", False: "inductive"})
    return rivals.where(about["kind"] != "sib", "sib").to_dict()


def _legend(axis: Axes, place: str) -> None:
    """Explain what is drawn in grey and what is hollow."""
    for kind, (shape, label) in KINDS.items():
        look = {"color": INK, "markerfacecolor": "white", "markersize": 6} if kind == "sib" else {"color": REST}
        axis.plot([], [], marker=shape, linestyle="", label=label, **look)
    axis.legend(loc=place, fontsize=10)


def _caption(table: pd.DataFrame) -> str:
    """Name the methods outside `HEADLINE`, of each of `KINDS` those with the highest accuracy first."""
    kinds, mean = _kinds(table), table.groupby("method")["ours"].mean().sort_values(ascending=False)
    lines = []
    for kind, (_, label) in KINDS.items():
        names = [name.removeprefix("SIB, ") for name in mean.index if kinds[name] == kind and name not in HEADLINE]
        if names:
            lines += textwrap.wrap(f"{label}, best first: {' · '.join(names)}", 150, subsequent_indent="    ")
    return "\n".join(lines)


def pulls(maps: Mapping[str, np.ndarray]) -> Figure:
    """Draw how strongly methods pull a class weight towards a query, a panel for each method.

    Hatched is where they push it away, so that the picture can be read in grey.

    Args:
        maps: by the name of the method, its pull as `experiment.response` returns it, by the class's share of all
            queries and the query's own probability of the class, `[len(SHARES), len(PROBABILITIES)]`.
    """
    figure, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 3.9), sharey=True, squeeze=False)
    for axis, (name, values) in zip(axes[0], maps.items(), strict=True):
        most = np.abs(values).max()
        shown = axis.pcolormesh(PROBABILITIES, SHARES, values, cmap="RdBu", vmin=-most, vmax=most, shading="nearest")
        if values.min() < 0:
            away = axis.contourf(PROBABILITIES, SHARES, values, levels=[-most, 0], colors="none", hatches=["//"])
            away.set(edgecolor="#555555", linewidth=0)
        axis.contour(PROBABILITIES, SHARES, values, levels=[0], colors="black", linewidths=1.5)
        axis.axhline(0.2, color=INK, linewidth=1, linestyle=":")  # the share of a class in balanced queries
        axis.set(title=name, xlabel="the query's probability of the class")
        bar = figure.colorbar(shown, ax=axis, fraction=0.05)
    bar.set_label("pull (hatched: pushed away)")
    axes[0, 0].set_ylabel("the class's share of the queries")
    return figure
