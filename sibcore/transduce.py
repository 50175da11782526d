"""One task of any size with a trained SIB: the class probabilities of all its queries, before and after adaptation."""

from __future__ import annotations

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

    The step keeps its trained length: a class moves by the mean over n / k queries, as many as it has of its own when
    classes are balanced. Other numbers of ways need an equivariant xi, other features a lambda that weighs all alike.
    """
    setup = model.setup
    if ways != model.ways and not setup["equivariant"]:
        raise ValueError(f"this SIB was made for {model.ways} ways, not {ways}: take one with an equivariant xi")
    if dim != model.dim and not bool((model.prototype_weight == 1).all()):
        raise ValueError(f"this SIB was made for features of size d = {model.dim}, got {dim}: take 'any-way'")
    length = setup["eta"] * (tasks["queries"] if setup["reduction"] == "sum" else 1 / tasks["ways"])
    eta, steps = length * ways, model.steps if steps is None else steps
    other = SIB(**setup | {"ways": ways, "dim": dim, "steps": steps, "reduction": "mean", "eta": eta}).to(model.scale)
    weights = model.state_dict()
    if dim != model.dim:
        weights["prototype_weight"] = other.prototype_weight.detach()
    other.load_state_dict(weights)
    return other.eval()


@torch.no_grad()
def answers(model: SIB, support: Tensor, labels: Tensor, query: Tensor) -> Answers:
    """support [m, d], labels [m] in 0..k-1, query [n, d]. A single query is not adapted to: it has no company."""
    if len(query) < 2:
        model = model.changed(steps=0)
    check_tasks(model, support[None], labels[None], query[None])
    support, query = unit(support[None]), unit(query[None])
    thetas = model.infer(support, labels[None], query)
    return Answers(*(model.classify(query, theta)[0].softmax(-1) for theta in (thetas[0], thetas[-1])))
