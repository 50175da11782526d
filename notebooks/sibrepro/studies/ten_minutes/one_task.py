"""What notebook 00 shows: one task of CIFAR-FS, a picture of SIB's steps on it, and sliders that change both.

Everything is computed from published features and a published SIB, by the project's reference implementation. The
notebook writes the same steps out in its own cells.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Literal, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from IPython.display import display
from matplotlib.figure import Figure
from pydantic import Field
from torch import Tensor

from sibcore.apply.classifier import SIBClassifier
from sibcore.episodes import EpisodeSampler
from sibcore.reference import Function, Step, classify, initialise, sib_steps, synthesise
from sibcore.sib import SIB
from sibrepro.facts import Record
from sibrepro.meta_training import shipped
from sibrepro.meta_training.along_the_steps import in_the_plane
from sibrepro.meta_training.runs import protocol
from sibrepro.meta_training.training import FEW_SHOT, trained_sib
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.plots import BLUE, COLOURS, GREY, MARKERS

SEED = 2_000_000  # of the sequence of tasks, far from the seeds of training and testing
OTHERS = 30  # how many further tasks the picture averages over
Choice = Literal["trained", "untrained", "true gradient"]


@parameters
class TenMinutes:
    """The parameters of notebook 00: the task, and the steps that are taken on it."""

    task: NonNegative = Field(19, description="number of the task in the sequence of tasks")
    shots: Literal[1, 5] = Field(1, description="labelled images per class")
    K: NonNegative = Field(5, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    queries: Count = Field(15, le=100, description="unlabelled images per class, on average")
    alpha: float = Field(0.0, ge=0, description="Dirichlet spread of the queries over the classes; 0: equally many")
    xi: Choice = Field("trained", description="what stands for the gradient of the loss")


class Task(NamedTuple):
    """One episode of features.

    Attributes:
        support: features of the m labelled images, `[m, d]`.
        y_l: their labels, `[m]`.
        x: features of the n queries, `[n, d]`.
        y: their labels, `[n]`. Only the accuracy and the "true gradient" use them.
    """

    support: Tensor
    y_l: Tensor
    x: Tensor
    y: Tensor


def run(shots: int) -> Record:
    """Return the published run whose SIB the notebook shows: Table 1, CIFAR-FS, Conv-4-64, K = 3."""
    return FEW_SHOT.published(protocol("cifar-fs", "conv4-64", K=3, shots=shots))


@functools.lru_cache
def published(shots: int) -> SIB:
    """Return the trained SIB of that run, frozen."""
    return trained_sib(run(shots)).cpu().requires_grad_(False)


@functools.lru_cache
def test_features() -> tuple[Tensor, Tensor]:
    """Return unit-length features of all images of the 20 test classes, `[N, d]`, and their classes, `[N]`."""
    test = shipped.load()["test"]
    return F.normalize(test.features, dim=-1), test.labels


def tasks(p: TenMinutes, first: int, count: int) -> list[Task]:
    """Draw tasks of five test classes.

    Args:
        p: the notebook's parameters; of these, shots, queries and alpha matter.
        first: number of the first task. A task of a number is the same however many are drawn.
        count: how many tasks to draw.
    """
    features, labels = test_features()
    drawn = EpisodeSampler(labels, 5, p.shots, p.queries, SEED, alpha=p.alpha or None).sample(first, count)
    parts = features[drawn.support], drawn.support_labels, features[drawn.query], drawn.query_labels
    return [Task(*task) for task in zip(*parts, strict=True)]


def stand_in(choice: Choice, sib: SIB, y: Tensor) -> Function:
    """Return the function of y^ that takes the place of dl/dy^ in eq. (sib).

    Args:
        choice: a trained xi, an untrained one, or the true gradient of the cross-entropy.
        sib: the SIB that has the trained xi.
        y: labels of the queries, `[n]`. Only the true gradient uses them; in practice nobody has them.
    """
    if choice == "true gradient":
        return lambda y_hat: y_hat.softmax(-1) - F.one_hot(y, sib.ways)
    xi = sib.xi if choice == "trained" else SIB(sib.ways, sib.dim).xi
    return lambda y_hat: synthesise(xi, y_hat)


def steps_of(p: TenMinutes, task: Task) -> list[Step]:
    """Take K steps on a task, by the project's reference implementation.

    Returns:
        For k = 0, ..., K the class weights theta^k, the logits y^ there and what stands for dl/dy^.
    """
    sib = published(p.shots)
    theta = initialise(task.support, task.y_l, sib.prototype_weight)
    xi = stand_in(p.xi, sib, task.y)
    steps = sib_steps(theta, lambda theta, k: classify(sib, task.x, theta), xi, p.eta, p.K, mean=False)
    return [Step(*(value.detach() for value in step)) for step in steps]


def accuracies(steps: list[Step], y: Tensor) -> list[float]:
    """Return the accuracy in percent with theta^0, ..., theta^K, on queries with labels y `[n]`."""
    return [100 * (step.y_hat.argmax(-1) == y).double().mean().item() for step in steps]


def along_the_steps(p: TenMinutes, count: int = 100) -> pd.DataFrame:
    """Return the accuracy in percent after each step, for each kind of gradient.

    Args:
        p: the notebook's parameters.
        count: how many tasks to average over.

    Returns:
        A row for each of `Choice`, a column for each of theta^0, ..., theta^K.
    """
    drawn, means = tasks(p, 100, count), {}
    for choice in ("untrained", "trained", "true gradient"):
        changed = dataclasses.replace(p, xi=choice)
        found = [accuracies(steps_of(changed, task), task.y) for task in drawn]
        means[f"{choice} ξ" if "trained" in choice else choice] = torch.tensor(found).mean(0).tolist()
    return pd.DataFrame(means, index=[f"θ^{k}" for k in range(p.K + 1)]).T


def other_numbers_of_classes(ways: tuple[int, ...] = (2, 5, 20), count: int = 20) -> pd.DataFrame:
    """Return the accuracy in percent of the any-way SIB, before and after its steps, by number of classes.

    The classes of a task have one to four labelled images each, and 15 queries.

    Args:
        ways: the numbers of classes.
        count: how many tasks to average over.
    """
    features, classes = test_features()
    rows = {}
    for number in ways:
        drawn = EpisodeSampler(classes, number, shots=4, queries=15, seed=0).sample(0, count)
        labelled = torch.cat([4 * way + torch.arange(1 + way % 4) for way in range(number)])
        right = np.zeros(2)
        for i in range(count):
            support, y_l = features[drawn.support[i, labelled]], drawn.support_labels[i, labelled]
            classifier, query = SIBClassifier().fit(support, y_l), features[drawn.query[i]]
            answers = np.stack([classifier.predict_before(query), classifier.predict(query)])
            right += (answers == drawn.query_labels[i].numpy()).mean(1)
        rows[f"{number} classes"] = 100 * right / count
    return pd.DataFrame(rows, index=["before the steps (%)", "after the steps (%)"]).T


def picture(p: TenMinutes) -> Figure:
    """Draw a task and the steps on it.

    The left panel shows queries and class weights in the plane of the queries' two largest principal components. The
    right panel shows the accuracy after each step, of this task and averaged over `OTHERS`.
    """
    task = tasks(p, p.task, 1)[0]
    steps = steps_of(p, task)
    figure, (plane, curve) = plt.subplots(1, 2, figsize=(10.5, 4.3), width_ratios=(3, 2))
    _draw_plane(plane, task, steps)
    curve.plot(accuracies(steps, task.y), "o-", color=BLUE, linewidth=2, label=f"this task, {len(task.y)} queries")
    others = [accuracies(steps_of(p, other), other.y) for other in tasks(p, 0, OTHERS)]
    curve.plot(torch.tensor(others).mean(0), "s--", color=GREY, label=f"mean of {OTHERS} tasks")
    curve.axhline(20, color="black", linewidth=0.8, linestyle=":", label="chance")
    curve.set(xlabel="number of steps k", ylabel=r"accuracy with $\theta^k$ (%)", ylim=(15, 102))
    curve.set_xticks(range(0, p.K + 1, max(1, p.K // 6)))
    curve.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    return figure


def _draw_plane(axis: plt.Axes, task: Task, steps: list[Step]) -> None:
    """Draw the queries as points and the path of each class weight as a line, in the plane of the queries."""
    place = in_the_plane(task.x)
    points = place(task.x)
    paths = place(F.normalize(torch.stack([step.theta for step in steps]), dim=-1))  # [K+1, k, 2]
    for way, path in enumerate(paths.unbind(1)):
        colour, marker = COLOURS[way], MARKERS[way]
        axis.scatter(*points[task.y == way].T, color=colour, marker=marker, s=26, alpha=0.6, linewidth=0)
        axis.plot(*path.T, color=colour, linewidth=2)
        axis.scatter(*path[0], color="white", marker=marker, s=70, edgecolor=colour, linewidth=2, zorder=3)
        axis.scatter(*path[-1], color=colour, marker=marker, s=150, edgecolor="black", linewidth=1.3, zorder=4)
    wrong = steps[-1].y_hat.argmax(-1) != task.y
    axis.scatter(*points[wrong].T, color="black", marker="x", s=22, linewidth=0.9, zorder=2)
    axis.set(xticks=[], yticks=[], xlabel="first two principal components of the queries")
    axis.set_title(r"large: $\theta^0$ (hollow), $\theta^K$ (filled); small: queries, crossed: wrong", fontsize=11)


def live() -> bool:
    """Tell whether somebody uses the notebook interactively.

    Jupyter's server and Colab set a variable of the environment; papermill and nbval do not.
    """
    return "JPY_SESSION_NAME" in os.environ or "COLAB_RELEASE_TAG" in os.environ


def play(p: TenMinutes) -> None:
    """Show the picture, with a control for each parameter if somebody is there to move it."""
    if not live():
        picture(p)
        return
    import ipywidgets as widgets

    once = {"continuous_update": False}  # redraw when a slider is let go, not while it moves
    balances = {"equally many of each class": 0.0, "Dirichlet(2)": 2.0, "Dirichlet(0.5)": 0.5}
    balance = p.alpha if p.alpha in balances.values() else 0.0
    controls = {
        "task": widgets.IntSlider(p.task, 0, 99, description="task", **once),
        "shots": widgets.ToggleButtons(options=[1, 5], value=p.shots, description="shots"),
        "K": widgets.IntSlider(p.K, 0, max(10, p.K), description="K", **once),
        "eta": widgets.FloatLogSlider(p.eta, min=-5, max=-1, step=0.25, description="eta", **once),
        "queries": widgets.IntSlider(p.queries, 1, max(40, p.queries), description="queries", **once),
        "alpha": widgets.Dropdown(options=balances, value=balance, description="balance"),
        "xi": widgets.Dropdown(options=Choice.__args__, value=p.xi, description="ξ"),
    }

    def redraw(**values: object) -> None:
        display(picture(TenMinutes(**values)))
        plt.close()

    shown = widgets.interactive_output(redraw, controls)
    columns = [*controls.values()]
    display(widgets.HBox([widgets.VBox(columns[:4]), widgets.VBox(columns[4:])]), shown)
