"""The figures of notebook 03, drawn from run records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sibcore import datasets
from sibcore.episodes import EpisodeSampler
from sibcore.reference import Step
from sibrepro.facts import Record
from sibrepro.meta_training.along_the_steps import in_the_plane
from sibrepro.plots import BLUE, COLOURS, GREY, MARKERS, ORANGE
from sibrepro.statistics import Score


def one_episode(dataset: str = "cifar-fs", shots: int = 1, shown: int = 6) -> Figure:
    """Support and queries of a task of test classes."""
    data = datasets.load(dataset)
    labels, images, ways = torch.from_numpy(data.split_labels("test")), data.images[data.rows("test")], 5
    task = EpisodeSampler(labels, ways, shots, 15, seed=0).sample(0, 1)
    figure, axes = plt.subplots(ways, shots + shown, figsize=(1.05 * (shots + shown) + 1.6, 1.1 * ways))
    for way, row in enumerate(axes):
        support, query = task.support[task.support_labels == way], task.query[task.query_labels == way][:shown]
        for axis, image, known in zip(row, [*support, *query], [True] * shots + [False] * shown, strict=True):
            axis.imshow(images[image])
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set(visible=True, color=ORANGE if known else GREY, linewidth=2)
        name = data.splits["test"][task.classes[0, way]].replace("_", " ")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    axes[0, 0].set_title("support $d_t^l$", loc="left", fontsize=11)
    axes[0, shots].set_title("query $d_t$, labels hidden", loc="left", fontsize=11)
    return figure


def task_in_the_plane(record: Record) -> Figure:
    """One task's queries in their two largest principal components, and the class weights from theta^0 to theta^K."""
    queries, support, theta = (record.arrays[f"view/{name}"] for name in ("queries", "support", "theta"))
    labels, support_labels = record.arrays["view/labels"], record.arrays["view/support_labels"]
    accuracy = 100 * record.arrays["view/accuracy"]
    figure, axis = plt.subplots(figsize=(6.4, 5))
    for way, colour in zip(range(theta.shape[1]), COLOURS, strict=False):
        _class(axis, way, queries[labels == way], s=26, alpha=0.6, linewidth=0)
        _class(axis, way, support[support_labels == way], s=130, edgecolor="black", linewidth=1.2)
        axis.plot(*theta[:, way].T, color=colour, linewidth=2)
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "mutation_scale": 18}
        axis.annotate("", theta[-1, way], theta[-2, way], arrowprops=arrow)
    title = rf"queries (small), support (black edge), $\theta^0\to\theta^{len(theta) - 1}$ (arrows): "
    axis.set_title(f"{title}accuracy {accuracy[0]:.0f} → {accuracy[-1]:.0f} %", fontsize=10.5)
    axis.set(xlabel="first principal component of the queries", ylabel="second")
    return figure


def step_by_step(steps: Sequence[Step], query: Tensor, labels: Tensor) -> Figure:
    """One task along theta^0, ..., theta^K: probabilities and xi of every query, and the class weights in the plane."""
    figure, axes = plt.subplots(3, len(steps), figsize=(2.6 * len(steps), 7.6), squeeze=False, layout="constrained")
    place = in_the_plane(query)
    points = place(query).numpy()
    reach = max(float(step.dl_dy.detach().abs().max()) for step in steps)
    same = {"aspect": "auto", "interpolation": "nearest"}
    for step, k, column in zip(steps, range(len(steps)), axes.T, strict=True):
        probability, right = step.y_hat.detach().softmax(-1), step.y_hat.argmax(-1) == labels
        column[0].imshow(probability, cmap="cividis", vmin=0, vmax=1, **same)
        column[1].imshow(step.dl_dy.detach(), cmap="PuOr", vmin=-reach, vmax=reach, **same)
        weights = place(torch.nn.functional.normalize(step.theta.detach(), dim=-1)).numpy()
        for way in range(len(weights)):
            _class(column[2], way, points[labels == way], s=14, alpha=0.55, linewidth=0)
            _class(column[2], way, weights[[way]], s=120, edgecolor="black", linewidth=1.3)
        column[0].set_title(rf"$\theta^{k}$: {100 * right.double().mean():.0f} % right")
        for axis in column:
            axis.set(xticks=[], yticks=[])
    names = (r"softmax of $\hat y$, a row a query", r"$\xi(\hat y)$", r"queries and $\theta^k$")
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name)
    return figure


def _class(axis: Axes, way: int, points: np.ndarray, **look: object) -> None:
    """Points [n, 2] of one class."""
    axis.scatter(*points.T, color=COLOURS[way % 8], marker=MARKERS[way % 8], **look)


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
