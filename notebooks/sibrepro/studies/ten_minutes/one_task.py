"""Notebook 00: one task of CIFAR-FS, the picture of its steps, and sliders that change it."""

from __future__ import annotations

import functools
import os
from typing import Literal, NamedTuple

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from IPython.display import display
from matplotlib.figure import Figure
from pydantic import Field
from torch import Tensor

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

SEED, OTHERS = 2_000_000, 30  # the stream of tasks; how many of them "other tasks" are
Choice = Literal["trained", "untrained", "true gradient"]


@parameters
class TenMinutes:
    """Notebook 00."""

    task: NonNegative = Field(19, description="which task of the stream")
    shots: Literal[1, 5] = Field(1, description="labelled images per class")
    K: NonNegative = Field(5, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    queries: Count = Field(15, le=100, description="unlabelled images per class, on average")
    alpha: float = Field(0.0, ge=0, description="Dirichlet spread of the queries over the classes; 0: equally many")
    xi: Choice = Field("trained", description="what stands for the gradient of the loss")


class Task(NamedTuple):
    support: Tensor  # [m, d]
    y_l: Tensor  # [m]
    x: Tensor  # [n, d]
    y: Tensor  # [n], which only the score and the "true gradient" look at


def run(shots: int) -> Record:
    """The published run whose SIB is looked at: of Table 1, K = 3, trained on the training classes of CIFAR-FS."""
    return FEW_SHOT.published(protocol("cifar-fs", "conv4-64", K=3, shots=shots))


@functools.lru_cache
def published(shots: int) -> SIB:
    """The SIB of that run."""
    return trained_sib(run(shots)).cpu().requires_grad_(False)


@functools.lru_cache
def test_features() -> tuple[Tensor, Tensor]:
    """Of all images of the 20 test classes [N, d], and their classes [N]."""
    test = shipped.load()["test"]
    return F.normalize(test.features, dim=-1), test.labels


def tasks(p: TenMinutes, first: int, count: int) -> list[Task]:
    """Tasks of five test classes, of the features that come with the project."""
    features, labels = test_features()
    found = EpisodeSampler(labels, 5, p.shots, p.queries, SEED, alpha=p.alpha or None).sample(first, count)
    return [
        Task(features[found.support[i]], found.support_labels[i], features[found.query[i]], found.query_labels[i])
        for i in range(count)
    ]


def stand_in(choice: Choice, sib: SIB, y: Tensor) -> Function:
    """What takes the place of dl/dy^ in eq. (sib); the true one needs the labels y, which nobody has."""
    if choice == "true gradient":
        return lambda y_hat: y_hat.softmax(-1) - F.one_hot(y, sib.ways)
    xi = sib.xi if choice == "trained" else SIB(sib.ways, sib.dim).xi
    return lambda y_hat: synthesise(xi, y_hat)


def steps_of(p: TenMinutes, task: Task) -> list[Step]:
    """theta^0, ..., theta^K of a task by the project's reference."""
    sib = published(p.shots)
    theta = initialise(task.support, task.y_l, sib.prototype_weight)
    xi = stand_in(p.xi, sib, task.y)
    steps = sib_steps(theta, lambda theta, k: classify(sib, task.x, theta), xi, p.eta, p.K, mean=False)
    return [Step(*(value.detach() for value in step)) for step in steps]


def accuracies(steps: list[Step], y: Tensor) -> list[float]:
    """In percent, of theta^0, ..., theta^K."""
    return [100 * (step.y_hat.argmax(-1) == y).double().mean().item() for step in steps]


def picture(p: TenMinutes) -> Figure:
    """A task in the plane of its queries, with the way of the class weights; and the accuracy along that way."""
    task = tasks(p, p.task, 1)[0]
    steps = steps_of(p, task)
    figure, (plane, curve) = plt.subplots(1, 2, figsize=(10.5, 4.3), width_ratios=(3, 2))
    _draw_plane(plane, task, steps)
    curve.plot(accuracies(steps, task.y), "o-", color=BLUE, linewidth=2, label="this task")
    others = [accuracies(steps_of(p, other), other.y) for other in tasks(p, 0, OTHERS)]
    curve.plot(torch.tensor(others).mean(0), "s--", color=GREY, label=f"mean of {OTHERS} tasks")
    curve.axhline(20, color="black", linewidth=0.8, linestyle=":", label="chance")
    curve.set(xlabel="k", ylabel=r"accuracy with $\theta^k$ (%)", ylim=(15, 102))
    curve.set_xticks(range(0, p.K + 1, max(1, p.K // 6)))
    curve.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    return figure


def _draw_plane(axis: plt.Axes, task: Task, steps: list[Step]) -> None:
    place = in_the_plane(task.x)
    points = place(task.x)
    ways = place(F.normalize(torch.stack([step.theta for step in steps]), dim=-1))  # [K+1, k, 2]
    for way, colour, marker in zip(range(ways.shape[1]), COLOURS, MARKERS, strict=False):
        axis.scatter(*points[task.y == way].T, color=colour, marker=marker, s=26, alpha=0.6, linewidth=0)
        axis.plot(*ways[:, way].T, color=colour, linewidth=2)
        axis.scatter(*ways[0, way], color="white", marker=marker, s=70, edgecolor=colour, linewidth=2, zorder=3)
        axis.scatter(*ways[-1, way], color=colour, marker=marker, s=150, edgecolor="black", linewidth=1.3, zorder=4)
    wrong = steps[-1].y_hat.argmax(-1) != task.y
    axis.scatter(*points[wrong].T, color="black", marker="x", s=22, linewidth=0.9, zorder=2)
    axis.set(xticks=[], yticks=[], xlabel="first two principal components of the queries")
    axis.set_title(r"hollow: $\theta^0$   filled: $\theta^K$   crossed: answered wrongly", fontsize=10.5)


def live() -> bool:
    """Is somebody at a notebook's front end? Its server names the session; papermill, nbval and nbclient do not."""
    return "JPY_SESSION_NAME" in os.environ or "COLAB_RELEASE_TAG" in os.environ


def play(p: TenMinutes) -> None:
    """`picture` with a control for each parameter, where somebody can move them; else the picture."""
    if not live():
        picture(p)
        return
    import ipywidgets as widgets

    names = {name: {"description": name, "continuous_update": False} for name in p.__dataclass_fields__}
    controls = {
        "task": widgets.IntSlider(p.task, 0, 99, **names["task"]),
        "shots": widgets.ToggleButtons(options=[1, 5], value=p.shots, description="shots"),
        "K": widgets.IntSlider(p.K, 0, max(10, p.K), **names["K"]),
        "eta": widgets.FloatLogSlider(p.eta, min=-5, max=-1, step=0.25, **names["eta"]),
        "queries": widgets.IntSlider(p.queries, 1, max(40, p.queries), **names["queries"]),
        "alpha": widgets.Dropdown(
            options={"equally many of each class": 0.0, "Dirichlet(2)": 2.0, "Dirichlet(0.5)": 0.5},
            value=p.alpha if p.alpha in (0.0, 2.0, 0.5) else 0.0,
            description="balance",
        ),
        "xi": widgets.Dropdown(options=list(Choice.__args__), value=p.xi, description="ξ"),
    }

    def redraw(**values: object) -> None:
        display(picture(TenMinutes(**values)))
        plt.close()

    shown = widgets.interactive_output(redraw, controls)
    display(widgets.HBox([widgets.VBox(list(controls.values())[:4]), widgets.VBox(list(controls.values())[4:])]), shown)
