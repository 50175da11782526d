"""Classifiers that see the support set alone and answer each query by itself."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from sibcore.sib import unit
from sibrepro.rivals.base import Baseline, shares


class NearestCentroid(Baseline):
    """Logits fall with the distance to the class means, the head of a Prototypical Network.

    "euclidean" is -scale ||x - c||^2 / 2 and "cosine" is scale cos(x, c). They differ by the length of c alone, so
    not at all with one shot. The publication has scale = 2 on raw features; ours are unit vectors, hence a larger one,
    which changes probabilities but no answer.
    """

    title = "Nearest centroid"
    paper = "Snell et al., 2017"
    transductive = False
    defaults: ClassVar = {"metric": "euclidean", "scale": 10.0}
    grid: ClassVar = {"metric": ("euclidean", "cosine")}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        centres = shares(self.membership(support, support_labels)) @ support
        if self.metric == "cosine":
            return self.scale * query @ unit(centres).mT
        # ||x||^2 is the same for all classes, and the softmax does not see it
        return self.scale * (query @ centres.mT - centres.square().sum(-1).unsqueeze(1) / 2)


class MatchingNet(Baseline):
    """Attention over the support set: p(j) = sum over examples i of class j of softmax_i(scale cos(x, x_i)).

    The publication has scale = 1 (its cosines come from an end-to-end network) and full context embeddings, left out
    here. A class with more examples gets more attention, as published.
    """

    title = "Matching Network"
    paper = "Vinyals et al., 2016"
    transductive = False
    defaults: ClassVar = {"scale": 10.0}
    grid: ClassVar = {"scale": (1.0, 3.0, 10.0, 30.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return attention_by_class(self.scale * query @ support.mT, self.membership(support, support_labels))


class RidgeRegression(Baseline):
    """One ridge regression per class onto 0 or 1, the head of R2-D2 and of MetaOptNet-RR.

    W = X^T (X X^T + penalty I)^-1 Y, an m x m system, with X and Y centred on the support set: that is an intercept
    without penalty (the publications have none). Logits are scale (W x + b); they learn scale and penalty on raw
    features, here both are constants for unit vectors.
    """

    title = "Ridge regression (R2-D2)"
    paper = "Bertinetto et al., 2019"
    transductive = False
    defaults: ClassVar = {"penalty": 1.0, "scale": 10.0}
    grid: ClassVar = {"penalty": (0.01, 0.1, 1.0, 10.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        targets = self.membership(support, support_labels).mT
        return self.scale * ridge(support, targets, query, self.penalty)


class SVM(Baseline):
    """Crammer and Singer's multi-class support vector machine, the head of MetaOptNet-SVM.

    min_W ||W||^2 / 2 + C sum_i max_j (1 - [j = y_i] + w_j x_i - w_{y_i} x_i), no intercept. In the dual
    w_j = sum_i (C [j = y_i] - p_ij) x_i, where p_i lies in the simplex of sum C; one p_i is optimal in closed form
    while the others rest (a projection on the simplex), and `passes` over the support set do so in turn.
    With unit features and C up to 10, 100 passes leave a relative duality gap below 1e-4 (the publication: 15 steps of
    an interior-point solver, C = 0.1 on raw features). Logits are scale W x; MetaOptNet learns the scale.
    """

    title = "SVM (MetaOptNet)"
    paper = "Lee et al., 2019"
    transductive = False
    defaults: ClassVar = {"C": 1.0, "passes": 100, "scale": 10.0}
    grid: ClassVar = {"C": (0.1, 1.0, 10.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return self.scale * query @ (self.coefficients(support, support_labels) @ support).mT

    def coefficients(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """A [B, k, m] with w_j = sum_i A_ji x_i."""
        right = self.membership(support, support_labels)
        products = support @ support.mT
        A = torch.zeros_like(right)
        for _ in range(self.passes):
            for i in range(support.shape[1]):
                length = products[:, i, i, None]
                margin = (A * products[:, None, i]).sum(-1) + 1 - right[:, :, i]  # w_j x_i + [j != y_i]
                p = project_on_simplex(margin / length + self.C * right[:, :, i] - A[:, :, i], self.C)
                A[:, :, i] = self.C * right[:, :, i] - p
        return A


def attention_by_class(similarity: Tensor, of_class: Tensor) -> Tensor:
    """log sum_{i of class j} softmax_i(similarity) as [B, n, k], from similarity [B, n, m] and of_class [B, k, m]."""
    attention = similarity.log_softmax(-1).unsqueeze(2)
    return attention.masked_fill(of_class.unsqueeze(1) == 0, -math.inf).logsumexp(-1)


def ridge(support: Tensor, targets: Tensor, query: Tensor, penalty: float | Tensor) -> Tensor:
    """What ridge regression of targets [B, m, k] on support [B, m, d], with an intercept, says of query [B, n, d]."""
    centre, intercept = support.mean(1, keepdim=True), targets.mean(1, keepdim=True)
    points = support - centre
    kernel = points @ points.mT
    kernel.diagonal(dim1=1, dim2=2).add_(penalty)
    dual = torch.cholesky_solve(targets - intercept, torch.linalg.cholesky(kernel))
    return (query - centre) @ points.mT @ dual + intercept


def project_on_simplex(x: Tensor, total: float | Tensor) -> Tensor:
    """The point of {p >= 0, sum p = total} nearest to x, along the last dimension (Held, Wolfe and Crowder 1974)."""
    ordered = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    # shift_r makes the r largest entries sum to `total`; the right r is where it is largest
    shift = ((ordered.cumsum(-1) - total) / count).amax(-1, keepdim=True)
    return (x - shift).clamp_min(0)
