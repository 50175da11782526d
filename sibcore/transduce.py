"""One task of any size with a trained SIB: the class probabilities of all its queries, before and after adaptation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sibcore.sib import SIB, check_tasks, unit


class Answers(NamedTuple):
    """Probabilities [n, k]: of theta^0, each class's mean, and of theta^K, after K steps on all queries together."""

    before: Tensor
    after: Tensor


def resized(model: SIB, tasks: Mapping[str, Any], ways: int, dim: int, steps: int | None = None) -> SIB:
    """The same parameters for other numbers of ways, queries, features and steps than those of the training `tasks`.

    The step keeps its trained length with any number of queries: what was a sum over those of a training task is so
    many times a mean. Other numbers of ways need an equivariant xi, other features a lambda that weighs all alike.
    """
    setup = model.setup
    if ways != model.ways and not model.any_way:
        raise ValueError(f"this SIB was made for {model.ways} ways, not {ways}: take one with an equivariant xi")
    if dim != model.dim and not bool((model.prototype_weight == 1).all()):
        raise ValueError(f"this SIB was made for features of size d = {model.dim}, got {dim}: take 'any-way'")
    summed = tasks["queries"] * tasks["ways"] if setup["reduction"] == "sum" else 1
    eta = step_size(setup["eta"] * summed, model.ways, ways)
    sizes = {"ways": ways, "dim": dim, "steps": model.steps if steps is None else steps}
    other = SIB(**setup | sizes | {"reduction": "mean", "eta": eta}).to(model.scale)
    weights = model.state_dict()
    if dim != model.dim:
        weights["prototype_weight"] = other.prototype_weight.detach()
    other.load_state_dict(weights)
    return other.eval()


def step_size(eta: float, trained: int, ways: int) -> float:
    """eta, for means over queries, at another number of ways than it is meant for.

    A mean over n queries has n / k of a class's own, which asks for a longer step as k grows, and all those of others,
    which does not; the geometric mean of the two did best on validation classes (see `sibrepro.zoo.any_way`).
    """
    return eta * math.sqrt(ways / trained)


@torch.no_grad()
def answers(model: SIB, support: Tensor, labels: Tensor, query: Tensor) -> Answers:
    """support [m, d], labels [m] in 0..k-1, query [n, d]. A single query is not adapted to: it has no company."""
    if len(query) < 2:
        model = model.changed(steps=0)
    check_tasks(model, support[None], labels[None], query[None])
    support, query = unit(support[None]), unit(query[None])
    thetas = model.infer(support, labels[None], query)
    return Answers(*(model.classify(query, theta)[0].softmax(-1) for theta in (thetas[0], thetas[-1])))
