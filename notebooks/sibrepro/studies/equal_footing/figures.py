"""The figures of notebook 07, drawn from the tables and arrays of runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from sibrepro.plots import BLUE, GREY, ORANGE
from sibrepro.studies.equal_footing.experiment import PROBABILITIES, SHARES

KINDS = {"SIB": (BLUE, "o"), "transductive": (ORANGE, "s"), "inductive": (GREY, "^")}  # colour and marker
# Where a name may stand beside its point (right, up), in order of preference.
DIRECTIONS = [(1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)]


def footing(table: pd.DataFrame) -> Figure:
    """Draw all methods, a row of panels for each number of shots, from the table `tables.comparison`.

    The left panel shows the accuracy on unbalanced queries against that on balanced ones. The right panel shows the
    mean of the two against the speed of inference.
    """
    shots = sorted(table["shots"].unique())
    figure, axes = plt.subplots(len(shots), 2, figsize=(12, 5.2 * len(shots)), squeeze=False)
    labels = []
    for (left, right), number in zip(axes, shots, strict=True):
        part = table[table["shots"] == number]
        accuracy = part.pivot(index="method", columns="queries", values="ours")
        about = part.drop_duplicates("method").set_index("method").loc[accuracy.index]
        rivals = np.where(about["transductive"], "transductive", "inductive")
        kinds = np.where(about["kind"] == "sib", "SIB", rivals)
        balanced, unbalanced = accuracy["balanced"], accuracy["dirichlet2"]
        mean, speed = accuracy.mean(axis=1), about["tasks_per_second"]

        # On the diagonal a method does not mind if the queries are balanced.
        low, high = accuracy.min().min() - 1, accuracy.max().max() + 1
        left.plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=0)
        left.set(xlabel="balanced queries (%)", ylabel="Dirichlet(2) queries (%)", title=f"{number}-shot")
        left.set(xlim=(low, high + 5), ylim=(low, high))  # room for names on the right
        right.set(xlabel="tasks per second", ylabel="mean of the two (%)", xscale="log", title=f"{number}-shot")
        right.set(xlim=(speed.min() / 1.5, 4 * speed.max()), ylim=(mean.min() - 0.5, mean.max() + 0.8))
        # Inductive methods lie too close together for names. Those of SIBs trained on one kind of tasks are too long.
        named = (kinds != "inductive") & ~accuracy.index.str.endswith("training")
        for axis, x, y in ((left, balanced, unbalanced), (right, speed, mean)):
            for kind, (colour, marker) in KINDS.items():
                axis.scatter(x[kinds == kind], y[kinds == kind], color=colour, marker=marker, label=kind, s=36)
            labels.append((axis, x, y, named))
    axes[0, 0].legend(fontsize=9)
    figure.draw_without_rendering()  # settles the layout: before it, nobody knows where the points lie
    for several in labels:
        _label(*several)
    return figure


def _label(axis: Axes, x: pd.Series, y: pd.Series, named: np.ndarray) -> None:
    """Write names beside points, where they cover neither a point nor another name; a line leads to distant ones.

    Args:
        axis: the panel, whose limits and place in the figure are final.
        x, y: coordinates of all points, by name.
        named: which of the points get their name.
    """
    scale = 72 / axis.figure.dpi  # from pixels to printer's points, in which text offsets are given
    places = pd.Series([*(scale * axis.transData.transform(np.column_stack([x, y])))], x.index)
    taken = [Bbox.from_bounds(*(place - 4), 8, 8) for place in places]
    frame = Bbox(scale * axis.transAxes.transform([(0, 0), (1, 1)]))
    line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
    beside = {"xytext": (0, 0), "textcoords": "offset points", "arrowprops": line}
    for name in y[named].sort_values(ascending=False).index:
        text = axis.annotate(name, (x[name], y[name]), fontsize=7.5, color="#333333", **beside)
        text.set_in_layout(False)
        size = scale * text.get_window_extent().size + 3
        # Try all directions next to the point, then further and further away.
        for distance, (right, up) in itertools.product(range(0, 200, 3), DIRECTIONS):
            middle = np.array([right * (6 + distance + size[0] / 2), up * (5 + distance + size[1] / 2)])
            box = Bbox.from_bounds(*(places[name] + middle - size / 2), *size)
            inside = frame.x0 < box.x0 and frame.y0 < box.y0 < frame.y1
            if inside and not any(map(box.overlaps, taken)):
                break
        taken.append(box)
        text.set_position(middle - size / 2)
        text.arrow_patch.set_visible(distance > 0)


def pushes(maps: Mapping[str, np.ndarray]) -> Figure:
    """Draw how strongly methods pull a query towards a class, a panel for each method.

    Args:
        maps: by the name of the method, its pull as `experiment.response` returns it, by the class's share of all
            queries and the query's own probability of the class, `[len(SHARES), len(PROBABILITIES)]`.
    """
    figure, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 3.8), sharey=True, squeeze=False)
    for axis, (name, values) in zip(axes[0], maps.items(), strict=True):
        most = np.abs(values).max()
        shown = axis.pcolormesh(PROBABILITIES, SHARES, values, cmap="RdBu", vmin=-most, vmax=most, shading="nearest")
        axis.contour(PROBABILITIES, SHARES, values, levels=[0], colors="black", linewidths=1)
        axis.axhline(0.2, color=GREY, linewidth=0.8, linestyle=":")  # the share of a class in balanced queries
        axis.set(title=name, xlabel="the query's probability of the class")
        figure.colorbar(shown, ax=axis, fraction=0.05)
    axes[0, 0].set_ylabel("the class's share of the other queries")
    return figure
