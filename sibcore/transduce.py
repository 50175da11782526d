"""Use a trained SIB on one task of any size.

`resized` fits a SIB to other numbers of classes, queries and features than those it was trained with. `answers` returns
the class probabilities of all queries of a task, before and after adaptation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sibcore.sib import SIB, check_tasks, unit


class Answers(NamedTuple):
    """Class probabilities `[n, k]` of a task's queries.

    `before` are those of theta^0, the class means; `after` are those of theta^K, after K steps on all queries together.
    """

    before: Tensor
    after: Tensor


def resized(model: SIB, tasks: Mapping[str, Any], ways: int, dim: int, steps: int | None = None) -> SIB:
    """Return a SIB with the same parameters for tasks of another size than the training tasks.

    The step keeps its trained length with any number of queries: a sum over the n queries of a training task becomes
    n times a mean. Other numbers of ways need an equivariant xi, other features a lambda that weighs all alike.

    Args:
        model: the trained SIB.
        tasks: the training tasks, of which "queries" (per class) and "ways" count here.
        ways: number of classes.
        dim: size of the features.
        steps: K; by default as many as the model has.
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
    """Scale the step size eta from the number of ways of training, `trained`, to another number of ways.

    In a mean over n queries, only n / k belong to a given class, which asks for a step that grows with k. The others
    push that class away with a strength that does not depend on k. The geometric mean of the two rules did best on
    validation classes (see the study `any_way` of `sibrepro`).
    """
    return eta * math.sqrt(ways / trained)


@torch.no_grad()
def answers(model: SIB, support: Tensor, labels: Tensor, query: Tensor) -> Answers:
    """Classify the queries of one task, before and after adaptation.

    A single query is not adapted to, as there are no other queries to compare it with: `after` equals `before`.

    Args:
        model: a SIB for the number of classes and the size of the features.
        support: labelled features `[m, d]`.
        labels: their classes `[m]`, from 0 to k - 1.
        query: features `[n, d]`.
    """
    if len(query) < 2:
        model = model.changed(steps=0)
    check_tasks(model, support[None], labels[None], query[None])
    support, query = unit(support[None]), unit(query[None])
    thetas = model.infer(support, labels[None], query)
    return Answers(*(model.classify(query, theta)[0].softmax(-1) for theta in (thetas[0], thetas[-1])))
