"""The figures of notebook 07, drawn from run records."""

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

KINDS = {"SIB": (BLUE, "o"), "transductive": (ORANGE, "s"), "inductive": (GREY, "^")}
COMPASS = [(1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)]  # where a name may stand, best first


def footing(table: pd.DataFrame) -> Figure:
    """For 1 and 5 shots: balanced against unbalanced queries, and accuracy on both against speed."""
    shots = sorted(table["shots"].unique())
    figure, axes = plt.subplots(len(shots), 2, figsize=(12, 5.2 * len(shots)), squeeze=False)
    shown = []
    for line, number in zip(axes, shots, strict=True):
        part = table[table["shots"] == number]
        wide = part.pivot(index="method", columns="queries", values="ours")
        about = part.drop_duplicates("method").set_index("method").loc[wide.index]
        kinds = np.where(about["kind"] == "sib", "SIB", np.where(about["transductive"], "transductive", "inductive"))
        both, speed = wide.mean(axis=1), about["tasks_per_second"]
        low, high = wide.to_numpy().min() - 1, wide.to_numpy().max() + 1
        line[0].plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=0)
        line[0].set(xlabel="balanced queries (%)", ylabel="Dirichlet(2) queries (%)", title=f"{number}-shot")
        line[0].set(xlim=(low, high + 5), ylim=(low, high))
        line[1].set(xlabel="tasks per second", ylabel="mean of the two (%)", xscale="log", title=f"{number}-shot")
        line[1].set(xlim=(speed.min() / 1.5, 4 * speed.max()), ylim=(both.min() - 0.5, both.max() + 0.8))
        for axis, x, y in ((line[0], wide["balanced"], wide["dirichlet2"]), (line[1], speed, both)):
            _points(axis, x, y, kinds)
            # inductive ones lie too close together; SIBs of one kind of tasks have long names
            named = (kinds != "inductive") & ~wide.index.str.endswith("training")
            shown.append((axis, x[named], y[named], np.column_stack([x, y])))
    axes[0, 0].legend(fontsize=9)
    figure.draw_without_rendering()  # only then it is known where the points lie
    for several in shown:
        _labels(*several)
    return figure


def _points(axis: Axes, x: pd.Series, y: pd.Series, kinds: np.ndarray) -> None:
    for kind, (colour, marker) in KINDS.items():
        axis.scatter(x[kinds == kind], y[kinds == kind], color=colour, marker=marker, label=kind, s=36)


def _labels(axis: Axes, x: pd.Series, y: pd.Series, points: np.ndarray) -> None:
    """Near each point its name, at the nearest place where it covers no point and no other name; a line leads there."""
    scale = 72 / axis.figure.dpi  # to printer's points
    taken = [Bbox.from_bounds(*(point - 4), 8, 8) for point in scale * axis.transData.transform(points)]
    frame = Bbox(scale * axis.transAxes.transform([(0, 0), (1, 1)]))
    for name in y.sort_values(ascending=False).index:
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        beside = {"xytext": (0, 0), "textcoords": "offset points", "arrowprops": line}
        text = axis.annotate(name, (x[name], y[name]), fontsize=7.5, color="#333333", **beside)
        text.set_in_layout(False)
        point, size = scale * axis.transData.transform((x[name], y[name])), scale * text.get_window_extent().size + 3
        for reach, (right, up) in itertools.product(range(0, 200, 3), COMPASS):
            middle = np.array([right * (6 + reach + size[0] / 2), up * (5 + reach + size[1] / 2)])
            box = Bbox.from_bounds(*(point + middle - size / 2), *size)
            if frame.x0 < box.x0 and frame.y0 < box.y0 < frame.y1 and not any(map(box.overlaps, taken)):
                break
        taken.append(box)
        text.set_position(middle - size / 2)
        text.arrow_patch.set_visible(reach > 0)


def pushes(maps: Mapping[str, np.ndarray]) -> Figure:
    """How a query is drawn towards a class, by the class's share of all queries and the query's own probability."""
    figure, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 3.8), sharey=True, squeeze=False)
    for axis, (name, values) in zip(axes[0], maps.items(), strict=True):
        most = np.abs(values).max()
        shown = axis.pcolormesh(PROBABILITIES, SHARES, values, cmap="RdBu", vmin=-most, vmax=most, shading="nearest")
        axis.contour(PROBABILITIES, SHARES, values, levels=[0], colors="black", linewidths=1)
        axis.axhline(0.2, color=GREY, linewidth=0.8, linestyle=":")
        axis.set(title=name, xlabel="the query's probability of the class")
        figure.colorbar(shown, ax=axis, fraction=0.05)
    axes[0, 0].set_ylabel("the class's share of the other queries")
    return figure
