"""Linear classifiers that solve a convex problem on the support set, on frozen features or on a learned embedding.

Shapes: B tasks, k ways, m support examples, n queries, d dimensions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from sibrepro.rivals.base import Baseline, EmbeddingHead, log_parameter


class RidgeRegression(Baseline):
    """Ridge regression from features to one-hot labels, the classifier inside R2-D2 and MetaOptNet-RR.

    Luca Bertinetto, João F. Henriques, Philip H. S. Torr and Andrea Vedaldi. "Meta-Learning with Differentiable
    Closed-Form Solvers." ICLR 2019.

    W = X^T (X X^T + penalty I)^-1 Y is the solution of an m x m system. X and Y are centred on the support set, which
    amounts to an intercept b without penalty. Logits are scale (W x + b).

    Departures: the publication has no intercept, and learns the scale and the penalty on raw features. Here both are
    constants for unit features.

    Args:
        penalty: weight of ||W||^2.
        scale: factor of the logits.
    """

    title = "Ridge regression (R2-D2)"
    paper = "Bertinetto et al., 2019"
    defaults: ClassVar = {"penalty": 1.0, "scale": 10.0}
    grid: ClassVar = {"penalty": (0.01, 0.1, 1.0, 10.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.scale * ridge(support, one_hot.mT, query, self.penalty)


class R2D2(EmbeddingHead):
    """R2-D2: ridge regression on a learned embedding.

    Luca Bertinetto, João F. Henriques, Philip H. S. Torr and Andrea Vedaldi. "Meta-Learning with Differentiable
    Closed-Form Solvers." ICLR 2019.

    Logits are scale (W f(x) + b), where W and b are the ridge regression of the support set (see `RidgeRegression`).
    The embedding f, the penalty and the scale are learned by differentiating through the solution of the m x m system.
    The published bias, which is the same for all classes, changes no probability.

    Departure: the layers below the embedding are frozen.

    Args:
        width: hidden units of the embedding.
    """

    title = "R2-D2"
    paper = "Bertinetto et al., 2019"

    def build(self) -> None:
        self.log_penalty = log_parameter(1.0)
        super().build()

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.log_scale.exp() * ridge(support, one_hot.mT, query, self.log_penalty.exp())


class SVM(Baseline):
    """Crammer and Singer's multi-class support vector machine, the classifier inside MetaOptNet-SVM.

    Kwonjoon Lee, Subhransu Maji, Avinash Ravichandran and Stefano Soatto. "Meta-Learning with Differentiable Convex
    Optimization." CVPR 2019.

    The weights minimise ||W||^2 / 2 + C sum_i max_j (1 - [j = y_i] + w_j x_i - w_{y_i} x_i), without intercept. In the
    dual, w_j = sum_i (C [j = y_i] - p_ij) x_i, where p_i lies in the simplex of sum C. One p_i is optimal in closed
    form while the others are fixed: it is a projection onto the simplex. Each pass updates all p_i in turn. With unit
    features and C up to 10, 100 passes leave a relative duality gap below 1e-4. Logits are scale W x.

    Departures: the publication runs 15 steps of an interior-point solver with C = 0.1 on raw features, and learns the
    scale.

    Args:
        C: weight of the hinge losses.
        passes: passes over the support set.
        scale: factor of the logits.
    """

    title = "SVM (MetaOptNet)"
    paper = "Lee et al., 2019"
    defaults: ClassVar = {"C": 1.0, "passes": 100, "scale": 10.0}
    grid: ClassVar = {"C": (0.1, 1.0, 10.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.scale * query @ (self.coefficients(support, one_hot) @ support).mT

    def coefficients(self, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return A `[B, k, m]` with w_j = sum_i A_ji x_i."""
        most = self.C * one_hot
        products = support @ support.mT
        A = torch.zeros_like(most)
        for _ in range(self.passes):
            for i in range(support.shape[1]):
                length = products[:, i, i, None]
                margin = (A * products[:, None, i]).sum(-1) + 1 - one_hot[:, :, i]  # w_j x_i + [j != y_i]
                p = project_on_simplex(margin / length + most[:, :, i] - A[:, :, i], self.C)
                A[:, :, i] = most[:, :, i] - p
        return A


class MetaOptNet(EmbeddingHead):
    """MetaOptNet-SVM: Crammer and Singer's support vector machine on a learned embedding.

    Kwonjoon Lee, Subhransu Maji, Avinash Ravichandran and Stefano Soatto. "Meta-Learning with Differentiable Convex
    Optimization." CVPR 2019.

    Logits are scale W f(x), where W is the machine of the support set (see `SVM`). The embedding f, C and the scale are
    learned. The dual problem is to minimise tr(A^T K A) / 2 - tr(A^T Y) with p_i = C y_i - a_i >= 0 and sum p_i = C.
    It is solved by the accelerated projected gradient, and training differentiates through its iterations. On unit
    features with C = 1, 30 iterations leave a relative duality gap below 3 %.

    Departures: the publication has an interior-point solver, which it differentiates implicitly, and a constant C. The
    layers below the embedding are frozen.

    Args:
        iterations: iterations of the accelerated projected gradient.
        width: hidden units of the embedding.
    """

    title = "MetaOptNet-SVM"
    paper = "Lee et al., 2019"
    defaults: ClassVar = {"iterations": 30, "width": 64}

    def build(self) -> None:
        self.log_C = log_parameter(1.0)
        super().build()

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        A = self.coefficients(support @ support.mT, one_hot.mT)
        return self.log_scale.exp() * (query @ support.mT @ A)

    def coefficients(self, products: Tensor, one_hot: Tensor) -> Tensor:
        """Solve the dual problem.

        Args:
            products: inner products of the support examples, K, `[B, m, m]`.
            one_hot: their labels, Y, `[B, m, k]`.

        Returns:
            A with w_j = sum_i A_ij f(x_i), `[B, m, k]`.
        """
        most = self.log_C.exp() * one_hot
        curvature = products.abs().sum(-1).amax(-1)[:, None, None]  # no eigenvalue exceeds the largest sum of a row
        p = ahead = most
        for t in range(self.iterations):
            downhill = (products @ (most - ahead) - one_hot) / curvature
            previous, p = p, project_on_simplex(ahead + downhill, self.log_C.exp())
            ahead = p + t / (t + 3) * (p - previous)
        return most - p


class LogisticRegression(Baseline):
    """Logistic regression on the support set, the "Baseline" of Chen et al. and the classifier of RFS.

    Wei-Yu Chen, Yen-Cheng Liu, Zsolt Kira, Yu-Chiang Frank Wang and Jia-Bin Huang. "A Closer Look at Few-Shot
    Classification." ICLR 2019.
    Yonglong Tian, Yue Wang, Dilip Krishnan, Joshua B. Tenenbaum and Phillip Isola. "Rethinking Few-Shot Image
    Classification: A Good Embedding Is All You Need?" ECCV 2020.

    The weights minimise ||W||^2 / 2 + C sum_i -log softmax(W x_i)_{y_i}, without intercept, by Nesterov's accelerated
    gradient. For unit features the condition number is at most 1 + C m / 2. This gives the step, the momentum and the
    number of iterations that are needed. Chen et al. stop SGD after 100 epochs instead. Tian et al. solve the same
    problem with C = 1.

    Args:
        C: weight of the losses beside the squared norm.
        tolerance: final error, as a fraction of the initial error.
    """

    title = "Logistic regression"
    paper = "Chen et al., 2019"
    defaults: ClassVar = {"C": 1.0, "tolerance": 1e-4}
    grid: ClassVar = {"C": (0.1, 1.0, 10.0, 100.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return query @ (self.coefficients(support, one_hot) @ support).mT

    def coefficients(self, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return A `[B, k, m]` with w_j = sum_i A_ji x_i."""
        products = support @ support.mT
        condition = 1 + self.C * support.shape[1] / 2
        root = math.sqrt(condition)
        momentum = (root - 1) / (root + 1)
        A = ahead = torch.zeros_like(one_hot)
        for _ in range(math.ceil(root * math.log(condition / self.tolerance))):
            gradient = ahead + self.C * ((ahead @ products).softmax(1) - one_hot)
            previous, A = A, ahead - gradient / condition
            ahead = A + momentum * (A - previous)
        return A


def ridge(support: Tensor, targets: Tensor, query: Tensor, penalty: float | Tensor) -> Tensor:
    """Fit a ridge regression with an intercept to the support set and predict the queries.

    Args:
        support: support features, `[B, m, d]`.
        targets: values to predict for them, `[B, m, k]`.
        query: query features, `[B, n, d]`.
        penalty: weight of the squared norm of the regression weights.

    Returns:
        Predictions for the queries, `[B, n, k]`.
    """
    centre, intercept = support.mean(1, keepdim=True), targets.mean(1, keepdim=True)
    points = support - centre
    kernel = points @ points.mT
    kernel.diagonal(dim1=1, dim2=2).add_(penalty)
    dual = torch.cholesky_solve(targets - intercept, torch.linalg.cholesky(kernel))
    return (query - centre) @ points.mT @ dual + intercept


def project_on_simplex(x: Tensor, total: float | Tensor) -> Tensor:
    """Return the point of {p >= 0, sum p = total} nearest to x, along the last dimension.

    The algorithm is that of Held, Wolfe and Crowder ("Validation of Subgradient Optimization", 1974).
    """
    ordered = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    # shift_r makes the r largest entries sum to `total`; the right r is where it is largest
    shift = ((ordered.cumsum(-1) - total) / count).amax(-1, keepdim=True)
    return (x - shift).clamp_min(0)
