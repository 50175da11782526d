"""Runs that diagnose the steps of a trained SIB: accuracy, loss, calibration and ξ along θ⁰, θ¹, ..."""

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
from sibrepro.meta_training.settings import OLDEST, SPELLING, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with

BEYOND = 3  # Steps that are taken past the K of the training.
BINS = 10  # The number of bins of confidence in a reliability diagram.
MOST_TASKS = 2000


def diagnostics(trained: Record) -> Record:
    """Return the run that diagnoses the SIB of a few-shot run."""
    return DIAGNOSTICS.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Follow the steps on the test tasks, or on the first 2,000 of them. See `diagnose` for what is returned."""
    sib, banks = inputs
    some = dataclasses.replace(p, test_episodes=min(p.test_episodes, MOST_TASKS))
    return diagnose(sib, banks["test"], tasks(some, banks["test"], "test").to(pick_device()))


@torch.no_grad()
def diagnose(model: SIB, bank: Features, tasks: Tasks, batch: int = 250) -> Numbers:
    """Follow the steps of a SIB on these tasks.

    Returns:
        metrics: after each step k, "accuracy/k", "loss/k", "calibration_error/k", and "xi_cosine/k", the cosine of ξ
            to dℓ/dŷ, the gradient that it stands for.
        arrays: "confidence", "correct" and "weight" `[K + 1 + BEYOND, BINS]` for reliability diagrams: the mean
            confidence and accuracy of the queries in a bin, and their number. Also one task in the plane:
            "view/queries" `[n, 2]`, "view/support" `[m, 2]`, "view/theta" `[K + 1, k, 2]`, "view/labels" `[n]`,
            "view/support_labels" `[m]` and "view/accuracy" `[K + 1]`.
    """
    longer = model.changed(steps=model.steps + BEYOND) if model.steps else model
    features = unit(bank.features).to(model.scale)
    sums: dict[str, Tensor] = {}
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        query = features[part.query]
        thetas = longer.infer(features[part.support], part.support_labels, query)
        for name, values in _sums(longer, thetas, query, part.query_labels).items():
            sums[name] = sums.get(name, 0) + values.double().cpu()
    queries, weight = tasks.query.numel(), sums["weight"]
    confidence, correct = (sums[name] / weight.clamp_min(1) for name in ("confidence", "correct"))
    along = {
        "accuracy": sums["accuracy"] / queries,
        "loss": sums["loss"] / queries,
        "xi_cosine": sums["xi_cosine"] / len(tasks),
        "calibration_error": (weight / queries * (confidence - correct).abs()).sum(1),
    }
    metrics = {f"{name}/{k}": value for name, values in along.items() for k, value in enumerate(values.tolist())}
    arrays = {"confidence": confidence, "correct": correct, "weight": weight} | _view(model, features, tasks)
    return metrics, {name: array.cpu().numpy() for name, array in arrays.items()}


def _sums(model: SIB, thetas: list[Tensor], query: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return sums over a batch of tasks, each `[steps + 1]` or `[steps + 1, BINS]`."""
    rows = []
    for theta in thetas:
        logits = model.classify(query, theta)
        probability, answer = logits.softmax(-1).max(-1)
        right = (answer == labels).double()
        bin_ = (probability * BINS).long().clamp_max(BINS - 1).flatten()
        gradient = logits.softmax(-1) - F.one_hot(labels, model.ways)  # dℓ/dŷ
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
    """Return one typical task in the plane of the two largest principal components of its queries.

    Of the first hundred tasks, it is the one whose gain in accuracy is at the upper quartile.
    """
    part = tasks[:100]
    support, query = features[part.support], features[part.query]
    thetas = model.infer(support, part.support_labels, query)
    right = [(model.classify(query, theta).argmax(-1) == part.query_labels).double().mean(1) for theta in thetas]
    gain = right[-1] - right[0]
    one = int(gain.argsort(stable=True)[len(gain) * 3 // 4])
    place = in_the_plane(query[one])
    return {
        "view/labels": part.query_labels[one],
        "view/support_labels": part.support_labels[one],
        "view/accuracy": torch.stack([accuracy[one] for accuracy in right]),
        "view/queries": place(query[one]),
        "view/support": place(support[one]),
        "view/theta": place(F.normalize(torch.stack([theta[one] for theta in thetas]), dim=-1)),
    }


def in_the_plane(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that projects points to the plane of the two largest principal components of queries `[n, d]`.

    The function takes points `[..., d]` and returns `[..., 2]`.
    """
    mean = query.mean(0)
    axes = torch.linalg.svd(query - mean)[2][:2]
    return lambda points: (points - mean) @ axes.T


DIAGNOSTICS = Experiment(
    "diagnostics", FewShot, compute, trained_with, oldest=OLDEST, spelling=SPELLING, tolerance={"*": 0.01}
)
