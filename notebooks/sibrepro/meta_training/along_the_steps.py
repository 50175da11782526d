"""What the steps of a trained SIB do: accuracy, loss, calibration and xi along theta^0, theta^1, ..., as runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sibcore.device import pick_device
from sibcore.episodes import Tasks
from sibcore.sib import SIB, unit
from sibcore.vision.features import Features
from sibrepro.facts import Experiment, Numbers, Record
from sibrepro.meta_training.banks import Banks, tasks
from sibrepro.meta_training.settings import OLDEST, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with

BEYOND = 3  # steps taken past the trained K
BINS = 10  # of confidence
MOST_TASKS = 2000


def inside(trained: Record) -> Record:
    """Return the run of looking into the SIB of a few-shot run."""
    return INSIDE.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Follow the steps on the test tasks.

    Returns:
        metrics: per step k "accuracy/k", "loss/k", "xi_cosine/k" (of xi to dl/dy^, the gradient that it stands for) and
            "calibration_error/k".
        arrays: "confidence", "correct", "weight" [K+1+BEYOND, BINS] for reliability diagrams, and one task in the plane
            ("view/queries" [n, 2], "view/labels", "view/theta" [K+1, k, 2], "view/support" [m, 2]).
    """
    sib, banks = inputs
    some = dataclasses.replace(p, test_episodes=min(p.test_episodes, MOST_TASKS))
    return look(sib, banks["test"], tasks(some, banks["test"], "test").to(pick_device()))


@torch.no_grad()
def look(model: SIB, bank: Features, tasks: Tasks, batch: int = 250) -> Numbers:
    """Return the metrics and arrays of `compute`."""
    longer = model.changed(steps=model.steps + BEYOND) if model.steps else model
    features = unit(bank.features).to(model.scale)
    parts = []
    for part in (tasks[start : start + batch] for start in range(0, len(tasks), batch)):
        query = features[part.query]
        thetas = longer.infer(features[part.support], part.support_labels, query)
        parts.append(_along(longer, thetas, query, part.query_labels))
    sums = {name: sum(part[name].double().cpu() for part in parts) for name in parts[0]}
    queries, weight = tasks.query.numel(), sums["weight"]
    confidence, correct = (sums[name] / weight.clamp_min(1) for name in ("confidence", "correct"))
    along = {"accuracy": sums["accuracy"] / queries, "loss": sums["loss"] / queries}
    along |= {"xi_cosine": sums["xi_cosine"] / len(tasks)}
    along |= {"calibration_error": (weight / queries * (confidence - correct).abs()).sum(1)}
    metrics = {f"{name}/{k}": value for name, values in along.items() for k, value in enumerate(values.tolist())}
    arrays = {"confidence": confidence, "correct": correct, "weight": weight} | _view(model, features, tasks)
    return metrics, {name: array.cpu().numpy() for name, array in arrays.items()}


def _along(model: SIB, thetas: list[Tensor], query: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Sums over a batch of tasks, each [steps + 1] or [steps + 1, BINS]."""
    rows = []
    for theta in thetas:
        logits = model.classify(query, theta)
        probability, answer = logits.softmax(-1).max(-1)
        right = (answer == labels).double()
        bin_ = (probability * BINS).long().clamp_max(BINS - 1).flatten()
        gradient = logits.softmax(-1) - F.one_hot(labels, model.ways)  # dl/dy^
        xi = model.xi(logits) if model.transductive else gradient
        rows.append(
            {
                "accuracy": right.sum(),
                "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"),
                "xi_cosine": F.cosine_similarity(xi.flatten(1), gradient.flatten(1), dim=1).sum(),
                "weight": torch.bincount(bin_, minlength=BINS),
                "confidence": torch.bincount(bin_, probability.flatten().double(), BINS),
                "correct": torch.bincount(bin_, right.flatten(), BINS),
            }
        )
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _view(model: SIB, features: Tensor, tasks: Tasks) -> dict[str, Tensor]:
    """The task with the median gain among the first hundred, in the plane of its two largest principal components."""
    part = tasks[:100]
    support, query = features[part.support], features[part.query]
    thetas = model.infer(support, part.support_labels, query)
    right = [(model.classify(query, theta).argmax(-1) == part.query_labels).double().mean(1) for theta in thetas]
    gain = right[-1] - right[0]
    one = int(gain.argsort(stable=True)[len(gain) * 3 // 4])
    place = in_the_plane(query[one])
    weights = torch.stack([F.normalize(theta[one], dim=-1) for theta in thetas])
    points = {"queries": query[one], "support": support[one], "theta": weights}
    view = {"labels": part.query_labels[one], "support_labels": part.support_labels[one]}
    view |= {"accuracy": torch.stack([accuracy[one] for accuracy in right])}
    view |= {name: place(values) for name, values in points.items()}
    return {f"view/{name}": values for name, values in view.items()}


def in_the_plane(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Where points [..., d] lie in the plane of the two largest principal components of queries [n, d]: [..., 2]."""
    mean = query.mean(0)
    axes = torch.linalg.svd(query - mean)[2][:2]
    return lambda points: (points - mean) @ axes.T


INSIDE = Experiment("anatomy", FewShot, compute, trained_with, oldest=OLDEST, tolerance={"*": 0.01})
