"""The figures of notebook 03, drawn from run records.

Methods have the colours of `sibrepro.plots`. Where a figure shows two conditions of one method, markers tell them apart
and not colours, so that the figure can be read in grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from torch import Tensor

from sibcore import datasets
from sibcore.episodes import EpisodeSampler
from sibcore.reference import Step
from sibrepro import paper, tables
from sibrepro.facts import Record
from sibrepro.meta_training.along_the_steps import in_the_plane
from sibrepro.meta_training.runs import gain, queries, sib_score
from sibrepro.plots import BLUE, COLOURS, GREY, INK, MARKERS, ORANGE, OTHER, SKY, colour, marker
from sibrepro.statistics import Score
from sibrepro.statistics import bars as error_bars
from sibrepro.studies.few_shot.plan import SHOTS, FewShotRuns
from sibrepro.studies.few_shot.tables import STEPS, Runs

WAYS, SHOWN = 5, 6  # Of `one_episode`: its classes, and how many queries of each class it shows.
# Where a name can stand beside its point: the offset in points, and the side of the text that is there.
OFFSETS = {
    (7, 0): {"ha": "left", "va": "center"},
    (-7, 0): {"ha": "right", "va": "center"},
    (0, 7): {"ha": "center", "va": "bottom"},
    (0, -7): {"ha": "center", "va": "top"},
}
# The lines of SIB by its number of steps. More steps are darker, and the dashes tell them apart in grey.
LINES = {0: (GREY, ":"), 1: (SKY, "-."), 3: (BLUE, "-"), 5: (INK, "--")}


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
    for way, tint in zip(range(theta.shape[1]), COLOURS, strict=False):
        _scatter_class(axis, way, queries[view["labels"] == way], s=26, alpha=0.6, linewidth=0)
        _scatter_class(axis, way, support[view["support_labels"] == way], s=130, edgecolor="black", linewidth=1.2)
        axis.plot(*theta[:, way].T, color=tint, linewidth=2)
        arrow = {"arrowstyle": "-|>", "color": tint, "linewidth": 2, "mutation_scale": 18}
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


def training_curves(results: FewShotRuns) -> Figure:
    """Draw the training loss and the validation accuracy of SIB over its meta-training, by shots and K.

    A line is the mean over seeds, a band goes from the lowest to the highest seed.

    Args:
        results: the published runs of one image set and backbone.
    """
    figure, axes = plt.subplots(2, 2, figsize=(9.2, 5.6), sharex=True)
    for (shots, K), records in results.sib.items():
        column, step = axes[:, SHOTS.index(shots)], records[0].arrays["step"]
        tint, dashes = LINES[K]
        for axis, name, factor in zip(column, ("loss", "validation"), (1, 100), strict=True):
            curves = factor * np.stack([record.arrays[name] for record in records])
            axis.plot(step, curves.mean(0), color=tint, linestyle=dashes, label=f"K = {K}")
            axis.fill_between(step, curves.min(0), curves.max(0), color=tint, alpha=0.25, linewidth=0)
        column[0].set_title(f"{shots}-shot")
        column[1].set_xlabel("meta-training step")
    axes[0, 0].set_ylabel("training loss (nats)")
    axes[1, 0].set_ylabel("validation accuracy (%)")
    axes[0, 1].legend()
    return figure


def accuracy_against_K(results: FewShotRuns, here: Runs, dataset: str, backbone: str, steps: int) -> Figure:
    """Draw the test accuracy of SIB over K with 95 % intervals: ours, the paper's, and that of the notebook's own runs.

    Args:
        results: the published runs of the image set and backbone.
        here: the notebook's own runs by (shots, K).
        dataset: the image set.
        backbone: the backbone.
        steps: how many meta-training steps the notebook's own runs took.
    """
    printed = paper.synthetic_gradients().query("variant == 'SIB' and trained_shots == tested_shots")
    printed = printed[printed["eta"].isna() | (printed["eta"] == 1e-3)]
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6))
    for axis, shots in zip(axes, SHOTS, strict=True):
        theirs = printed.query("tested_shots == @shots and backbone == @backbone and dataset == @dataset")
        axis.errorbar(theirs["K"] - 0.06, theirs["value"], theirs["ci95"], fmt="s--", color=GREY, label="paper")
        ours = {K: sib_score(records) for (s, K), records in results.sib.items() if s == shots}
        values, spread = error_bars(ours.values())
        axis.plot([*ours], values, "o-", color=BLUE, label="ours")
        axis.fill_between([*ours], values - spread, values + spread, color=BLUE, alpha=0.25, linewidth=0)
        own = {K: sib_score(records) for (s, K), records in here.items() if s == shots}
        places, label = [K + 0.06 for K in own], f"this run, {steps:,} steps"
        axis.errorbar(places, *error_bars(own.values()), fmt="D", color=BLUE, mfc="white", label=label)
        axis.set(xlabel="synthetic gradient steps $K$", title=f"{shots}-shot", xticks=sorted({*ours, *own}))
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend(loc="lower right")
    return figure


def gain_by_episode(results: FewShotRuns) -> Figure:
    """Draw how many points three steps add to K = 0 in each test episode: a histogram for each number of shots.

    Args:
        results: the published runs of one image set and backbone; the first seed is shown.
    """
    both = [shots for shots in SHOTS if (shots, 0) in results.sib and (shots, STEPS) in results.sib]
    figure, axes = plt.subplots(1, len(both), figsize=(4.6 * len(both), 3.4), squeeze=False, sharey=True)
    for axis, shots in zip(axes[0], both, strict=True):
        first, second = (results.sib[shots, K] for K in (0, STEPS))
        before, after = (records[0].arrays[f"best/{shots}shot"].astype(float) for records in (first, second))
        points, mean = 100 * (after - before) / queries(first[0]), gain(first, second)
        share = np.full(len(points), 100 / len(points))
        axis.hist(points, bins=np.arange(-40.5, 61, 3), weights=share, color=SKY, edgecolor="white")
        axis.axvline(0, color=INK, linewidth=0.8)
        axis.axvline(mean.mean, color=BLUE, linewidth=2, linestyle="--")
        losing = f"{100 * (points < 0).mean():.0f} % of {len(points):,} episodes lose"
        axis.set_title(f"{shots}-shot: mean {mean} points,\n{losing}", fontsize=11)
        axis.set_xlabel(f"gain of K = {STEPS} over K = 0 (points)")
    axes[0, 0].set_ylabel("episodes (%)")
    return figure


def gain_by_network(gains: pd.DataFrame) -> Figure:
    """Draw the gain of three steps against the accuracy at K = 0, a panel for each number of shots.

    Args:
        gains: a row for each image set, backbone and number of shots, as `tables.network_gains` returns them.
    """
    styles = {"cifar-fs": ("o", BLUE), "mini-imagenet": ("s", ORANGE)}
    panels = gains.groupby("shots")
    figure, axes = plt.subplots(1, len(panels), figsize=(4.9 * len(panels), 4.2), squeeze=False, sharey=True)
    for axis, (shots, part) in zip(axes[0], panels, strict=True):
        for row in part.itertuples():
            symbol, tint = styles[row.dataset]
            fill = "white" if row.whose == "paper" else tint
            spread = 0 if pd.isna(row.ci95) else row.ci95
            axis.errorbar(row.start, row.gain, spread, fmt=symbol, color=tint, mfc=fill, markersize=7)
        axis.set(title=f"{shots}-shot", xlabel="test accuracy at K = 0 (%)", ylim=(0, 12))
        axis.margins(x=0.3)
        _label_points(axis, [(row.start, row.gain, row.backbone.replace(", ", "\n")) for row in part.itertuples()])
    axes[0, 0].set_ylabel("gain of K = 3 (points)")
    for (dataset, whose), _ in gains.groupby(["dataset", "whose"]):
        symbol, tint = styles[dataset]
        fill = "white" if whose == "paper" else tint
        label = f"{tables.DATASETS[dataset]}, {whose}"
        axes[0, -1].plot([], [], symbol, color=tint, mfc=fill, markersize=7, label=label)
    axes[0, -1].legend(fontsize=9, loc="upper right")
    return figure


def reliability(record: Record, steps: int) -> Figure:
    """Draw accuracy against confidence at θ⁰ and after the steps, above the histogram of the confidence.

    Args:
        record: a run of `sibrepro.meta_training.along_the_steps.DIAGNOSTICS`.
        steps: the number of steps of the right panel.
    """
    heights = {"height_ratios": [3, 1]}
    figure, axes = plt.subplots(2, 2, figsize=(7.6, 4.8), sharex=True, sharey="row", gridspec_kw=heights)
    for column, k, tint in zip(axes.T, (0, steps), (GREY, BLUE), strict=True):
        weight, confidence, correct = (record.arrays[name][k] for name in ("weight", "confidence", "correct"))
        column[0].plot([0.15, 1], [0.15, 1], color=INK, linewidth=0.8, linestyle=":")
        column[0].plot(confidence[weight > 0], correct[weight > 0], "o-", color=tint)
        error = 100 * record.metrics[f"calibration_error/{k}"]
        column[0].set_title(rf"$\theta^{k}$: calibration error {error:.1f} points", fontsize=11)
        middles = (np.arange(len(weight)) + 0.5) / len(weight)
        column[1].bar(middles, 100 * weight / weight.sum(), width=0.9 / len(weight), color=tint)
        column[1].set_xlabel("confidence")
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("queries (%)")
    return figure


def unbalanced_queries(scores: pd.DataFrame) -> Figure:
    """Draw the 1-shot accuracy of each method on balanced and on unbalanced queries, with 95 % intervals.

    Args:
        scores: a row for each method, as `tables.balance_scores` returns them.
    """
    rows = scores.sort_values("unbalanced").reset_index(drop=True)
    figure, axis = plt.subplots(figsize=(7, 0.34 * len(rows) + 1.3))
    for place, row in rows.iterrows():
        tint = _visible(row["method"])
        axis.plot([row["balanced"], row["unbalanced"]], [place, place], color=tint, linewidth=1.4, zorder=1)
        for name, fill in (("balanced", "white"), ("unbalanced", tint)):
            spread = row[f"{name}_ci95"]
            axis.errorbar(row[name], place, xerr=spread, fmt="o", color=tint, mfc=fill, markersize=7, zorder=2)
    axis.set(yticks=range(len(rows)), xlabel="test accuracy (%), 1-shot")
    axis.set_yticklabels(rows["method"])
    for label, fill in (("balanced queries", "white"), ("unbalanced, Dirichlet(2)", INK)):
        axis.plot([], [], "o", color=INK, mfc=fill, markersize=7, label=label)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=10)
    axis.grid(axis="x", alpha=0.3)
    return figure


def methods(scores: pd.DataFrame) -> Figure:
    """Draw the accuracy of each method with its 95 % interval, one panel for each number of shots.

    The best method on the fewest shots stands at the top. Filled markers see all queries at once, hollow ones see one.

    Args:
        scores: a row a method and number of shots, as `tables.method_scores` returns them.
    """
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
            tint = _visible(row.method)
            symbol = marker(row.method).replace(".", "o")
            fill = "white" if row.kind == "inductive" else tint
            axis.errorbar(row.mean, row.place, xerr=row.ci95, fmt=symbol, color=tint, mfc=fill, markersize=7)
        axis.set(yticks=range(len(order)), xlabel="test accuracy (%)", title=f"{shots}-shot")
        axis.set_yticklabels(order if axis is axes[0, 0] else [])
        axis.grid(axis="x", alpha=0.3)
    for label, fill in (("sees all queries at once", INK), ("sees one query at a time", "white")):
        axes[0, -1].plot([], [], "o", color=INK, mfc=fill, markersize=7, label=label)
    axes[0, -1].legend(loc="lower right", fontsize=9)
    return figure


def bars(scores: Mapping[str, Score], label: str, reference: str | None = None) -> Figure:
    """Draw named scores with their 95 % intervals, one above the other, the first at the top.

    Args:
        scores: the scores by name. Those whose name begins with "paper" are the paper's and look different.
        label: what they measure, written below the axis.
        reference: the name of a score that gets a dotted line through all others.
    """
    figure, axis = plt.subplots(figsize=(6.6, 0.42 * len(scores) + 1))
    names = [*reversed(scores)]
    for place, name in enumerate(names):
        mean, ci95 = scores[name]
        symbol, tint = ("s", GREY) if name.startswith("paper") else ("o", BLUE)
        axis.errorbar(mean, place, xerr=ci95, fmt=symbol, color=tint, markersize=7)
        axis.annotate(f"{mean:.1f}", (mean, place), (0, 7), textcoords="offset points", ha="center", fontsize=9)
    if reference:
        axis.axvline(scores[reference].mean, color=BLUE, linewidth=0.8, linestyle=":")
    axis.set(yticks=range(len(names)), xlabel=label, ylim=(-0.6, len(names) - 0.2))
    axis.set_yticklabels(names)
    axis.grid(axis="x", alpha=0.3)
    return figure


def _visible(method: str) -> str:
    """Return the colour of a method. Methods without a colour of their own are grey, but not too faint to be read."""
    return colour(method) if marker(method) != OTHER[1] else GREY


def _label_points(axis: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write a name beside each point (x, y, name), where it covers the fewest other points and names."""
    axis.figure.canvas.draw()
    dots = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in axis.transData.transform([p[:2] for p in points])]
    taken: list[Bbox] = []
    for number, (x, y, name) in enumerate(points):
        others = [*dots[:number], *dots[number + 1 :], *taken]
        tried = []
        for offset, sides in OFFSETS.items():
            text = axis.annotate(name, (x, y), offset, textcoords="offset points", fontsize=9, **sides)
            box = text.get_window_extent()
            tried.append((box.count_overlaps(others), len(tried), box, text))
        *_, box, kept = min(tried, key=lambda trial: trial[:2])
        taken.append(box)
        for *_, text in tried:
            if text is not kept:
                text.remove()


def _scatter_class(axis: Axes, way: int, points: np.ndarray, **style: object) -> None:
    """Draw the points `[n, 2]` of one class in its own colour and marker."""
    axis.scatter(*points.T, color=COLOURS[way % 8], marker=MARKERS[way % 8], **style)
