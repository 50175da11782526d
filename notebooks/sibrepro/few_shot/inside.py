"""What the steps of a trained SIB do inside its tasks: accuracy, loss, calibration and xi along theta^0, theta^1..."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from sibcore.device import pick_device
from sibcore.episodes import Tasks
from sibcore.sib import SIB, unit
from sibcore.vision.features import Features
from sibrepro.facts import Record
from sibrepro.few_shot.experiment import Banks, Numbers, examine, tasks
from sibrepro.few_shot.settings import INSIDE, FewShot

BEYOND = 3  # steps taken past the trained K
BINS = 10  # of confidence


def inside(trained: Record) -> Record:
    """The run of looking into the SIB of a few-shot run, on its test tasks.

    metrics: per step k "accuracy/k", "loss/k", "xi_cosine/k" (of xi to dl/dy^, the gradient that it stands for) and
    "calibration_error/k"; arrays: "confidence", "correct", "weight" [K+1+BEYOND, BINS] for reliability diagrams, and
    one task in the plane ("view/queries" [n, 2], "view/labels", "view/theta" [K+1, k, 2], "view/support" [m, 2])
    """

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        some = dataclasses.replace(p, test_episodes=min(p.test_episodes, 2000))
        return look(sib, banks["test"], tasks(some, banks["test"], "test").to(pick_device()))

    return examine(INSIDE, trained, compute)


@torch.no_grad()
def look(model: SIB, bank: Features, tasks: Tasks, batch: int = 250) -> Numbers:
    """Metrics and arrays of `inside`."""
    longer = model.changed(steps=model.steps + BEYOND) if model.steps else model
    features = unit(bank.features).to(model.scale)
    sums: dict[str, Tensor] = {}
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        support, query = features[part.support], features[part.query]
        thetas = longer.infer(support, part.support_labels, query)
        for name, values in _along(longer, thetas, query, part.query_labels).items():
            sums[name] = sums.get(name, 0) + values.double().cpu()
    queries = tasks.query.numel()
    weight = sums["weight"]
    confidence, correct = (sums[name] / weight.clamp_min(1) for name in ("confidence", "correct"))
    error = (weight / queries * (confidence - correct).abs()).sum(1)
    along = {name: (sums[name] / queries).tolist() for name in ("accuracy", "loss")}
    along |= {"xi_cosine": (sums["xi_cosine"] / len(tasks)).tolist(), "calibration_error": error.tolist()}
    metrics = {f"{name}/{k}": value for name, values in along.items() for k, value in enumerate(values)}
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
    mean = query[one].mean(0)
    _, _, axes = torch.linalg.svd(query[one] - mean)
    directions = torch.stack([F.normalize(theta[one], dim=-1) for theta in thetas])
    return {
        "view/queries": (query[one] - mean) @ axes[:2].T,
        "view/labels": part.query_labels[one],
        "view/support": (support[one] - mean) @ axes[:2].T,
        "view/support_labels": part.support_labels[one],
        "view/theta": (directions - mean) @ axes[:2].T,
        "view/accuracy": torch.stack([accuracy[one] for accuracy in right]),
    }
