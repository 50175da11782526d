"""The figures of notebook 03, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from sibcore import datasets
from sibcore.episodes import EpisodeSampler
from sibrepro.plots import BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, RED, SKY

if TYPE_CHECKING:
    from torch import Tensor

    from sibcore.datasets.base import ImageSet
    from sibcore.episodes import Tasks
    from sibcore.reference import Step
    from sibrepro.facts import Record
    from sibrepro.statistics import Score

COLOURS = [BLUE, ORANGE, GREEN, RED, PURPLE, PINK, SKY, GREY]
MARKERS = "osD^vPX*"


def episode(data: ImageSet, rows: np.ndarray, tasks: Tasks, names: Sequence[str], shown: int = 6) -> Figure:
    """The first task of `tasks`, whose indices point into `rows` of the image set: support left, some queries right."""
    ways, shots = tasks.classes.shape[1], tasks.support.shape[1] // tasks.classes.shape[1]
    figure, axes = plt.subplots(ways, shots + shown, figsize=(1.05 * (shots + shown) + 1.6, 1.1 * ways), squeeze=False)
    for way in range(ways):
        support = tasks.support[0][tasks.support_labels[0] == way]
        query = tasks.query[0][tasks.query_labels[0] == way][:shown]
        for place, index in enumerate([*support.tolist(), *query.tolist()]):
            axes[way, place].imshow(data.images[rows[index]])
        axes[way, 0].set_ylabel(
            names[int(tasks.classes[0, way])].replace("_", " "), rotation=0, ha="right", va="center"
        )
    for place, axis in enumerate(axes.flat):
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(visible=True, color=ORANGE if place % (shots + shown) < shots else GREY, linewidth=2)
    axes[0, 0].set_title("support $d_t^l$", loc="left", fontsize=11)
    axes[0, shots].set_title("query $d_t$, labels hidden", loc="left", fontsize=11)
    return figure


def one_episode(dataset: str = "cifar-fs", shots: int = 1) -> Figure:
    """A task of test classes: of the image set if it is at hand, else of procedural glyphs."""
    try:
        data = datasets.load(dataset)
    except FileNotFoundError:
        data = datasets.load("glyphs", per_class=32)
    labels = torch.from_numpy(data.split_labels("test"))
    tasks = EpisodeSampler(labels, 5, shots, 15, seed=0).sample(0, 1)
    return episode(data, data.rows("test"), tasks, data.splits["test"])


def task_in_the_plane(record: Record) -> Figure:
    """One task's queries in their two largest principal components, and the class weights from theta^0 to theta^K."""
    queries, labels, theta = (record.arrays[f"view/{name}"] for name in ("queries", "labels", "theta"))
    support, support_labels = record.arrays["view/support"], record.arrays["view/support_labels"]
    accuracy = 100 * record.arrays["view/accuracy"]
    figure, axis = plt.subplots(figsize=(6.4, 5))
    for way in range(theta.shape[1]):
        colour, marker = COLOURS[way % 8], MARKERS[way % 8]
        axis.scatter(*queries[labels == way].T, color=colour, marker=marker, s=26, alpha=0.6, linewidth=0)
        axis.scatter(
            *support[support_labels == way].T, color=colour, marker=marker, s=130, edgecolor="black", linewidth=1.2
        )
        axis.plot(*theta[:, way].T, color=colour, linewidth=2)
        axis.annotate(
            "",
            theta[-1, way],
            theta[-2, way],
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2, "mutation_scale": 18},
        )
    K = len(theta) - 1
    axis.set(
        xlabel="first principal component of the queries",
        ylabel="second",
        title=rf"queries (small), support (black edge), $\theta^0\to\theta^{K}$ (arrows): "
        f"accuracy {accuracy[0]:.0f} → {accuracy[-1]:.0f} %",
    )
    axis.title.set_fontsize(10.5)
    return figure


def step_by_step(steps: Sequence[Step], query: Tensor, labels: Tensor) -> Figure:
    """One task along theta^0, ..., theta^K: probabilities and xi of every query, and the class weights in the plane."""
    figure, axes = plt.subplots(3, len(steps), figsize=(2.6 * len(steps), 7.6), squeeze=False, layout="constrained")
    mean = query.mean(0)
    plane = torch.linalg.svd(query - mean)[2][:2].T
    points = ((query - mean) @ plane).numpy()
    reach = max(float(step.dl_dy.detach().abs().max()) for step in steps)
    for k, step in enumerate(steps):
        probability, right = step.y_hat.detach().softmax(-1), step.y_hat.argmax(-1) == labels
        axes[0, k].imshow(probability, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        look = {"cmap": "PuOr", "vmin": -reach, "vmax": reach}
        axes[1, k].imshow(step.dl_dy.detach(), aspect="auto", interpolation="nearest", **look)
        weights = ((torch.nn.functional.normalize(step.theta.detach(), dim=-1) - mean) @ plane).numpy()
        for way in range(len(weights)):
            colour, marker = COLOURS[way % 8], MARKERS[way % 8]
            axes[2, k].scatter(*points[labels == way].T, color=colour, marker=marker, s=14, alpha=0.55, linewidth=0)
            axes[2, k].scatter(*weights[way], color=colour, marker=marker, s=120, edgecolor="black", linewidth=1.3)
        axes[0, k].set_title(rf"$\theta^{k}$: {100 * right.double().mean():.0f} % right")
        for axis in axes[:, k]:
            axis.set(xticks=[], yticks=[])
    names = (r"softmax of $\hat y$, a row a query", r"$\xi(\hat y)$", r"queries and $\theta^k$")
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name)
    return figure


def methods(scores: pd.DataFrame) -> Figure:
    """Accuracy of each method with its 95 % interval; `scores` has method, kind, shots, mean, ci95."""
    looks = {"SIB": ("D", BLUE), "transductive": ("o", ORANGE), "inductive": ("s", GREY)}
    kinds = sorted(scores["shots"].unique())
    order = (
        scores.sort_values(["shots", "mean"], ascending=[False, True])["method"].drop_duplicates(keep="last").tolist()
    )
    figure, axes = plt.subplots(1, len(kinds), figsize=(4.4 * len(kinds) + 1.5, 0.33 * len(order) + 1.1), squeeze=False)
    for axis, shots in zip(axes[0], kinds, strict=True):
        rows = scores[scores["shots"] == shots].set_index("method").reindex(order)
        for place, (_, row) in enumerate(rows.iterrows()):
            if row.isna().all():
                continue  # measured on the other number of shots alone
            marker, colour = looks[row["kind"]]
            axis.errorbar(row["mean"], place, xerr=row["ci95"], fmt=marker, color=colour, markersize=6)
        axis.set(yticks=range(len(order)), xlabel="test accuracy (%)", title=f"{shots}-shot")
        axis.set_yticklabels(order if shots == kinds[0] else [])
        axis.grid(axis="x", alpha=0.3)
    handles = [plt.Line2D([], [], marker=m, color=c, linestyle="", label=n) for n, (m, c) in looks.items()]
    axes[0, -1].legend(handles=handles, loc="lower right", fontsize=9)
    return figure


def bars(scores: Mapping[str, Score], label: str, reference: str | None = None) -> Figure:
    """Scores by name, one above the other; a dotted line at the `reference`."""
    figure, axis = plt.subplots(figsize=(6.6, 0.42 * len(scores) + 1))
    for place, (name, score) in enumerate(reversed(scores.items())):
        axis.errorbar(score.mean, place, xerr=score.ci95, fmt="o", color=BLUE if name == reference else ORANGE)
        axis.annotate(
            f"{score.mean:.1f}", (score.mean, place), (0, 6), textcoords="offset points", ha="center", fontsize=9
        )
    if reference:
        axis.axvline(scores[reference].mean, color=BLUE, linewidth=0.8, linestyle=":")
    axis.set(yticks=range(len(scores)), xlabel=label, ylim=(-0.6, len(scores) - 0.2))
    axis.set_yticklabels(list(reversed(scores)))
    axis.grid(axis="x", alpha=0.3)
    return figure
