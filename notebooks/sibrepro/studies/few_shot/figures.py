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

WAYS, SHOWN = 5, 6  # Of `one_episode`: its classes, and how many queries of each class it shows.


def one_episode(dataset: str = "cifar-fs") -> Figure:
    """Draw one 1-shot episode of test classes: a row a class, with its support image (orange) and some queries (grey).

    Raise FileNotFoundError if the images are not on this machine.

    Args:
        dataset: the name of the image set.
    """
    data = datasets.load(dataset)
    labels, images = torch.from_numpy(data.split_labels("test")), data.images[data.rows("test")]
    task = EpisodeSampler(labels, WAYS, 1, 15, seed=0).sample(0, 1)
    figure, axes = plt.subplots(WAYS, 1 + SHOWN, figsize=(1.05 * (1 + SHOWN) + 1.6, 1.1 * WAYS))
    for way, row in enumerate(axes):
        support, queries = task.support[task.support_labels == way], task.query[task.query_labels == way]
        for axis, image in zip(row, [*support, *queries[:SHOWN]], strict=True):
            axis.imshow(images[image])
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set(visible=True, color=ORANGE if axis is row[0] else GREY, linewidth=2)
        name = data.splits["test"][task.classes[0, way]].replace("_", " ")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    axes[0, 0].set_title("support $d_t^l$", loc="left", fontsize=11)
    axes[0, 1].set_title("query $d_t$, labels hidden", loc="left", fontsize=11)
    return figure


def task_in_the_plane(record: Record) -> Figure:
    """Draw one task in the plane: queries, support images, and the path of each class weight from θ⁰ to θᴷ.

    The plane is spanned by the two largest principal components of the queries. An arrow shows where the last step
    takes the weight of a class.

    Args:
        record: a run of `sibrepro.meta_training.along_the_steps.DIAGNOSTICS`, whose arrays hold one task in the plane.
    """
    view = {name.removeprefix("view/"): array for name, array in record.arrays.items()}
    queries, support, theta = view["queries"], view["support"], view["theta"]
    before, *_, after = 100 * view["accuracy"]
    figure, axis = plt.subplots(figsize=(6.4, 5))
    for way, colour in zip(range(theta.shape[1]), COLOURS, strict=False):
        _scatter_class(axis, way, queries[view["labels"] == way], s=26, alpha=0.6, linewidth=0)
        _scatter_class(axis, way, support[view["support_labels"] == way], s=130, edgecolor="black", linewidth=1.2)
        axis.plot(*theta[:, way].T, color=colour, linewidth=2)
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "mutation_scale": 18}
        axis.annotate("", theta[-1, way], theta[-2, way], arrowprops=arrow)
    title = rf"queries (small), support (black edge), $\theta^0\to\theta^{len(theta) - 1}$ (arrows): "
    axis.set_title(f"{title}accuracy {before:.0f} → {after:.0f} %", fontsize=10.5)
    axis.set(xlabel="first principal component of the queries", ylabel="second")
    return figure


def step_by_step(steps: Sequence[Step], query: Tensor, labels: Tensor) -> Figure:
    """Draw one task along θ⁰, ..., θᴷ: a column a step, with the predictions, ξ, and the class weights in the plane.

    The first two rows show a matrix with a row for each query and a column for each class.

    Args:
        steps: what `sibcore.reference` records of each step.
        query: unit-length query features, `[n, d]`.
        labels: the classes of the queries, `[n]`.
    """
    figure, axes = plt.subplots(3, len(steps), figsize=(2.6 * len(steps), 7.6), squeeze=False, layout="constrained")
    place = in_the_plane(query)
    points = place(query).numpy()
    errors = [step.dl_dy.detach() for step in steps]
    # All steps share one scale of colours, so that they can be compared.
    largest = max(float(error.abs().max()) for error in errors)
    same = {"aspect": "auto", "interpolation": "nearest"}
    for k, (step, column) in enumerate(zip(steps, axes.T, strict=True)):
        column[0].imshow(step.y_hat.detach().softmax(-1), cmap="cividis", vmin=0, vmax=1, **same)
        column[1].imshow(errors[k], cmap="PuOr", vmin=-largest, vmax=largest, **same)
        weights = place(torch.nn.functional.normalize(step.theta.detach(), dim=-1)).numpy()
        for way in range(len(weights)):
            _scatter_class(column[2], way, points[labels == way], s=14, alpha=0.55, linewidth=0)
            _scatter_class(column[2], way, weights[[way]], s=120, edgecolor="black", linewidth=1.3)
        accuracy = (step.y_hat.argmax(-1) == labels).double().mean()
        column[0].set_title(rf"$\theta^{k}$: {100 * accuracy:.0f} % right")
        for axis in column:
            axis.set(xticks=[], yticks=[])
    axes[0, 0].set_ylabel(r"softmax of $\hat y$, a row a query")
    axes[1, 0].set_ylabel(r"$\xi(\hat y)$")
    axes[2, 0].set_ylabel(r"queries and $\theta^k$")
    return figure


def methods(scores: pd.DataFrame) -> Figure:
    """Draw the accuracy of each method with its 95 % interval, one panel for each number of shots.

    The best method on the fewest shots stands at the top.

    Args:
        scores: a row a method and number of shots, as `tables.method_scores` returns them.
    """
    styles = {"SIB": ("D", BLUE), "transductive": ("o", ORANGE), "inductive": ("s", GREY)}
    # Sorted by the accuracy on the fewest shots on which a method was measured, the best method last.
    worst_first = scores.sort_values(["shots", "mean"], ascending=[False, True])
    order = worst_first["method"].drop_duplicates(keep="last").tolist()
    places = scores["method"].map(order.index)
    panels = scores.assign(place=places).sort_values("place").groupby("shots")
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.4 * len(panels) + 1.5, 0.33 * len(order) + 1.1), squeeze=False
    )
    for axis, (shots, rows) in zip(axes[0], panels, strict=True):
        for row in rows.itertuples():
            marker, colour = styles[row.kind]
            axis.errorbar(row.mean, row.place, xerr=row.ci95, fmt=marker, color=colour, markersize=6)
        axis.set(yticks=range(len(order)), xlabel="test accuracy (%)", title=f"{shots}-shot")
        axis.set_yticklabels(order if axis is axes[0, 0] else [])
        axis.grid(axis="x", alpha=0.3)
    # Empty lines make the entries of the legend, one for each kind and not for each method.
    for kind, (marker, colour) in styles.items():
        axes[0, -1].plot([], [], marker=marker, color=colour, linestyle="", label=kind)
    axes[0, -1].legend(loc="lower right", fontsize=9)
    return figure


def bars(scores: Mapping[str, Score], label: str, reference: str | None = None) -> Figure:
    """Draw named scores with their 95 % intervals, one above the other, the first at the top.

    Args:
        scores: the scores by name.
        label: what they measure, written below the axis.
        reference: the name of a score that is drawn in another colour, with a dotted line through all others.
    """
    figure, axis = plt.subplots(figsize=(6.6, 0.42 * len(scores) + 1))
    names = [*reversed(scores)]
    for place, name in enumerate(names):
        mean, ci95 = scores[name]
        axis.errorbar(mean, place, xerr=ci95, fmt="o", color=BLUE if name == reference else ORANGE)
        axis.annotate(f"{mean:.1f}", (mean, place), (0, 6), textcoords="offset points", ha="center", fontsize=9)
    if reference:
        axis.axvline(scores[reference].mean, color=BLUE, linewidth=0.8, linestyle=":")
    axis.set(yticks=range(len(names)), xlabel=label, ylim=(-0.6, len(names) - 0.2))
    axis.set_yticklabels(names)
    axis.grid(axis="x", alpha=0.3)
    return figure


def _scatter_class(axis: Axes, way: int, points: np.ndarray, **style: object) -> None:
    """Draw the points `[n, 2]` of one class in its own colour and marker."""
    axis.scatter(*points.T, color=COLOURS[way % 8], marker=MARKERS[way % 8], **style)
