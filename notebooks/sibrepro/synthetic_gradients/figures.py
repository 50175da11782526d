"""The figures of notebook 04, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from sibrepro import paper
from sibrepro.few_shot.inside import BEYOND
from sibrepro.few_shot.plan import gain
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, RED

if TYPE_CHECKING:
    from sibrepro.facts import Record

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


def along_the_steps(records: Mapping[str, Record]) -> Figure:
    """Accuracy, loss, and xi's cosine to dl/dy^ at theta^0, theta^1, ..., past the trained K; anatomies by name."""
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.5))
    titles = {
        "accuracy": "test accuracy",
        "loss": "cross-entropy",
        "xi_cosine": r"cosine of $\xi$ to $\partial\ell/\partial\hat y$",
    }
    for (name, record), colour, marker in zip(records.items(), (BLUE, ORANGE, GREEN, RED, GREY), "osD^v", strict=False):
        K = record.params["K"]
        for axis, (metric, title) in zip(axes, titles.items(), strict=True):
            values = [record.metrics[f"{metric}/{k}"] for k in range(K + BEYOND + 1)]
            axis.plot(range(K + 1), values[: K + 1], marker=marker, color=colour, label=name)
            axis.plot(
                range(K, K + BEYOND + 1),
                values[K:],
                marker=marker,
                color=colour,
                linestyle=":",
                markerfacecolor="white",
            )
            axis.set(title=title, xlabel="step $k$ (open: past the trained $K$)")
            axis.title.set_fontsize(11)
    axes[0].legend(fontsize=9)
    return figure


def over_training(records: Sequence[Record]) -> Figure:
    """xi's cosine to dl/dy^ at each step, and the accuracy of theta^K, over the length of training; anatomies."""
    records = sorted(records, key=lambda record: record.params["steps"])
    steps, K = [record.params["steps"] for record in records], records[0].params["K"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for k, colour in zip(range(K + 1), (GREY, BLUE, ORANGE, GREEN), strict=False):
        axes[0].plot(
            steps, [r.metrics[f"xi_cosine/{k}"] for r in records], "o-", color=colour, label=rf"at $\theta^{k}$"
        )
    axes[1].plot(steps, [100 * r.metrics["accuracy/0"] for r in records], "s--", color=GREY, label=r"$\theta^0$")
    axes[1].plot(steps, [100 * r.metrics[f"accuracy/{K}"] for r in records], "o-", color=BLUE, label=rf"$\theta^{K}$")
    axes[0].set(xscale="log", xlabel="meta-training steps", ylabel=r"cosine of $\xi$ to $\partial\ell/\partial\hat y$")
    axes[1].set(xscale="log", xlabel="meta-training steps", ylabel="test accuracy (%)")
    for axis in axes:
        axis.legend(fontsize=9)
    return figure


def tied_or_not(
    start: Sequence[Record], own: Mapping[float, Sequence[Record]], tied: Mapping[float, Sequence[Record]]
) -> Figure:
    """Gain over K = 0 (`start`) by eta, with the outer rate at 1e-3 (the paper's text) and tied to eta (the release).

    Records by eta, all of 1-shot with K = 3; the paper's own gains beside them.
    """
    figure, axis = plt.subplots(figsize=(5.6, 3.8))
    readings = {"ours, outer rate 1e-3": (own, BLUE, "o-"), "ours, outer rate = η": (tied, ORANGE, "s--")}
    for label, (records, colour, line) in readings.items():
        gains = [gain(start, records[eta]) for eta in sorted(records)]
        bars = np.array([[score.mean, score.ci95] for score in gains]).reshape(-1, 2).T
        axis.errorbar(sorted(records), *bars, fmt=line, color=colour, label=label, capsize=3)
    printed = paper.synthetic_gradients().query("variant == 'SIB' and trained_shots == 1 and tested_shots == 1")
    rows = printed.query("K == 3").sort_values("eta")
    gains = rows["value"] - printed.query("K == 0")["value"].item()
    axis.plot(rows["eta"].astype(float), gains, "D:", color=GREY, label="the paper's table")
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set(xscale="log", xlabel=r"inner step size $\eta$", ylabel="gain over K = 0 (points), 1-shot, K = 3")
    axis.legend(fontsize=9)
    return figure
