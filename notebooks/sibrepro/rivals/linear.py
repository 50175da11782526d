"""Linear classifiers that solve a convex problem on the support set, on features as they are or learned through it."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Baseline, Embedding, Head


class RidgeRegression(Baseline):
    """One ridge regression per class onto 0 or 1, the head of R2-D2 and of MetaOptNet-RR.

    W = X^T (X X^T + penalty I)^-1 Y, an m x m system, with X and Y centred on the support set: that is an intercept
    without penalty (the publications have none). Logits are scale (W x + b); they learn scale and penalty on raw
    features, here both are constants for unit vectors.
    """

    title = "Ridge regression (R2-D2)"
    paper = "Bertinetto et al., 2019"
    defaults: ClassVar = {"penalty": 1.0, "scale": 10.0}
    grid: ClassVar = {"penalty": (0.01, 0.1, 1.0, 10.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        targets = self.membership(support, support_labels).mT
        return self.scale * ridge(support, targets, query, self.penalty)


class R2D2(Head):
    """Logits scale (W f(x) + b), with W and b the ridge regression of the support set onto 0 or 1 (`RidgeRegression`).

    f, the penalty and the scale are learned, through the solution of an m x m system. The published bias, the same for
    all classes, changes no probability. Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "R2-D2"
    paper = "Bertinetto et al., 2019"
    defaults: ClassVar = {"width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_penalty = nn.Parameter(torch.tensor(1.0).log())
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        targets = self.membership(support, support_labels).mT
        fitted = ridge(self.embed(support), targets, self.embed(query), self.log_penalty.exp())
        return self.log_scale.exp() * fitted


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


class MetaOptNet(Head):
    """Logits scale W f(x), with W Crammer and Singer's machine on the support set (`SVM`); f, C and scale are learned.

    Its dual, min over A of tr(A^T K A) / 2 - tr(A^T Y) with p_i = C y_i - a_i >= 0 and sum p_i = C, is solved by
    `iterations` of the accelerated projected gradient, through which training differentiates (the publication: an
    interior-point solver, differentiated implicitly, and a constant C); on unit features with C = 1 they leave a
    relative duality gap below 3 %. Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "MetaOptNet-SVM"
    paper = "Lee et al., 2019"
    defaults: ClassVar = {"iterations": 30, "width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_C = nn.Parameter(torch.tensor(1.0).log())
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        A = self.coefficients(support @ support.mT, self.membership(support, support_labels).mT)
        return self.log_scale.exp() * (query @ support.mT @ A)

    def coefficients(self, products: Tensor, right: Tensor) -> Tensor:
        """A [B, m, k] with w_j = sum_i A_ij f(x_i), for products [B, m, m] and right [B, m, k], the labels' one-hot."""
        most = self.log_C.exp() * right
        curvature = products.abs().sum(-1).amax(-1)[:, None, None]  # no eigenvalue is above the largest sum of a row
        p = ahead = most
        for t in range(self.iterations):
            downhill = (products @ (most - ahead) - right) / curvature
            previous, p = p, project_on_simplex(ahead + downhill, self.log_C.exp())
            ahead = p + t / (t + 3) * (p - previous)
        return most - p


class LogisticRegression(Baseline):
    """A linear softmax classifier fitted to the support set ("Baseline" of Chen et al.; RFS of Tian et al., 2020).

    min_W ||W||^2 / 2 + C sum_i -log softmax(W x_i)_{y_i}, no intercept, by Nesterov's accelerated gradient. The
    condition number is at most 1 + C m / 2 for unit features, which gives the step, the momentum and the number of
    iterations that bring the error below `tolerance` times the first; Chen et al. stop SGD after 100 epochs instead,
    Tian et al. solve the same problem with C = 1.
    """

    title = "Logistic regression"
    paper = "Chen et al., 2019"
    defaults: ClassVar = {"C": 1.0, "tolerance": 1e-4}
    grid: ClassVar = {"C": (0.1, 1.0, 10.0, 100.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return query @ (self.coefficients(support, support_labels) @ support).mT

    def coefficients(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """A [B, k, m] with w_j = sum_i A_ji x_i."""
        right = self.membership(support, support_labels)
        products = support @ support.mT
        condition = 1 + self.C * support.shape[1] / 2
        root = math.sqrt(condition)
        momentum = (root - 1) / (root + 1)
        A = ahead = torch.zeros_like(right)
        for _ in range(math.ceil(root * math.log(condition / self.tolerance))):
            gradient = ahead + self.C * ((ahead @ products).softmax(1) - right)
            previous, A = A, ahead - gradient / condition
            ahead = A + momentum * (A - previous)
        return A


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
