"""Methods that spread labels over a graph of the points of a task, whose edges connect neighbours.

Shapes: B tasks, k ways, m support examples, n queries, N = m + n points, d dimensions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import (
    Baseline,
    EmbeddingHead,
    class_mean_coefficients,
    gram,
    log_parameter,
    mean_weights,
    squared_distances,
    zeroed,
)


class LabelPropagation(Baseline):
    """Label propagation in closed form, as in the Transductive Propagation Network.

    Yanbin Liu, Juho Lee, Minseop Park, Saehoon Kim, Eunho Yang, Sung Ju Hwang and Yi Yang. "Learning to Propagate
    Labels: Transductive Propagation Network for Few-Shot Learning." ICLR 2019.
    Dengyong Zhou, Olivier Bousquet, Thomas Navin Lal, Jason Weston and Bernhard Schölkopf. "Learning with Local and
    Global Consistency." NeurIPS 2003.

    M = (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2. The weights W_ij = exp(-||x_i - x_j||^2 / (2 sigma^2)) connect each
    point to its nearest neighbours, in both directions, and never to itself. The class probabilities are M scaled to
    the sum 1. The method assumes that classes are clusters.

    Departures: TPN learns a sigma for each point (see `TPN`) and has alpha = 0.99. With one constant sigma and so large
    an alpha, the class whose support examples have the most neighbours wins, so alpha is smaller here.

    Args:
        sigma: width of the similarity.
        alpha: how far labels spread, below 1.
        neighbours: nearest neighbours that each point is connected to.
    """

    title = "Label propagation (TPN)"
    paper = "Liu et al., 2019"
    transductive = True
    defaults: ClassVar = {"sigma": 0.3, "alpha": 0.7, "neighbours": 20}
    grid: ClassVar = {"sigma": (0.25, 0.4), "alpha": (0.5, 0.8), "neighbours": (10, 20)}

    def __init__(self, ways: int, **options: float) -> None:
        super().__init__(ways, **options)
        check_alpha(self.alpha)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        products = gram(support, query)
        near = neighbour_graph(products, self.neighbours)
        W = ((products - 1) / self.sigma**2).exp() * (near | near.mT)  # ||x_i - x_j||^2 = 2 - 2 cos
        return propagated(W, one_hot, self.alpha)


class TPN(EmbeddingHead):
    """TPN: label propagation on a graph whose similarities are learned.

    Yanbin Liu, Juho Lee, Minseop Park, Saehoon Kim, Eunho Yang, Sung Ju Hwang and Yi Yang. "Learning to Propagate
    Labels: Transductive Propagation Network for Few-Shot Learning." ICLR 2019.

    As `LabelPropagation`, but W_ij = exp(-||f(x_i) / sigma_i - f(x_j) / sigma_j||^2 / 2). Here f is an embedding and
    sigma_i = exp(h(f(x_i))) with a small network h. Both are learned, and all sigma_i start equal.

    Departures: logits are scale log M with a learned scale. M alone is too soft, and training would sharpen it by
    bending the graph. As in `LabelPropagation`, alpha is below the published 0.99. On frozen features h reads f(x_i)
    by linear layers instead of convolutions, and the layers below f are not trained.

    Args:
        alpha: how far labels spread, below 1.
        neighbours: nearest neighbours that each point is connected to.
        width: hidden units of f and h.
    """

    title = "TPN"
    paper = "Liu et al., 2019"
    transductive = True
    defaults: ClassVar = {"alpha": 0.7, "neighbours": 20, "width": 64}

    def build(self) -> None:
        check_alpha(self.alpha)
        super().build()
        self.h = nn.Sequential(nn.Linear(self.dim, self.width), nn.ReLU(), zeroed(nn.Linear(self.width, 1)))
        nn.init.constant_(self.h[-1].bias, math.log(0.3))
        self.log_scale = log_parameter(2.0)

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        W = self.graph(torch.cat([support, query], 1))
        return self.log_scale.exp() * propagated(W, one_hot, self.alpha)

    def graph(self, points: Tensor) -> Tensor:
        """Return the similarities W `[B, N, N]` of embedded points f(x) `[B, N, d]`."""
        scaled = points / self.h(points).exp()
        products = scaled @ scaled.mT
        lengths = products.diagonal(dim1=1, dim2=2) / 2
        logs = products - lengths.unsqueeze(1) - lengths.unsqueeze(2)
        near = neighbour_graph(logs.detach(), self.neighbours)
        return logs.exp() * (near | near.mT)


class LaplacianShot(Baseline):
    """LaplacianShot: nearest prototypes with a Laplacian penalty, so that neighbouring queries get the same label.

    Imtiaz Masud Ziko, Jose Dolz, Eric Granger and Ismail Ben Ayed. "Laplacian Regularized Few-Shot Learning." ICML
    2020.

    The assignments y minimise

        E(Y) = sum_q (y_q log y_q + y_q a_q) - laplacian / 2 sum_qp w_qp y_q y_p

    by bound updates y_q = softmax(-a_q + laplacian sum_p w_qp y_p). Here a_qj = scale ||x_q - c_j||^2, and w is the
    graph of nearest neighbours among the queries. As published, `laplacian` is to be tuned.

    Departures: features are not centred on the mean of the training classes, because a method here sees one task. The
    graph is averaged with its transpose, because the updates lower E only if w is symmetric.

    Args:
        laplacian: weight of the penalty.
        neighbours: nearest neighbours that each query is connected to.
        rectify: whether to move the queries and the prototypes first, as BD-CSPN does (see `rectified`). This assumes
            that the support set and the queries have the same mean, so balanced queries.
        scale: factor of the distances.
        steps: number of bound updates.
    """

    title = "LaplacianShot"
    paper = "Ziko et al., 2020"
    transductive = True
    defaults: ClassVar = {"laplacian": 0.7, "neighbours": 3, "rectify": True, "scale": 1.0, "steps": 20}
    grid: ClassVar = {"laplacian": (0.1, 0.3, 0.5, 0.7), "rectify": (True, False)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        near = neighbour_graph(query @ query.mT, self.neighbours).to(query)
        if self.rectify:
            query = query + support.mean(1, keepdim=True) - query.mean(1, keepdim=True)
        products = gram(support, query)
        A = class_mean_coefficients(one_hot, products.shape[-1])
        if self.rectify:
            A = rectified(A, products, one_hot)
        a = self.scale * squared_distances(A, products)[..., support.shape[1] :]
        return self.updates(a, (near + near.mT) / 2).mT

    def updates(self, a: Tensor, w: Tensor) -> Tensor:
        """Run all bound updates.

        Args:
            a: scaled distances of queries to prototypes, `[B, k, n]`.
            w: symmetric graph of the queries, `[B, n, n]`.

        Returns:
            Logits, `[B, k, n]`.
        """
        logits = -a
        for _ in range(self.steps):
            logits = -a + self.laplacian * logits.softmax(1) @ w
        return logits


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha < 1, for which labels spread over a finite distance."""
    if not alpha < 1:
        raise ValueError(f"alpha = {alpha}: expected a number in (0, 1), else I - alpha S has no inverse")


def propagated(W: Tensor, one_hot: Tensor, alpha: float) -> Tensor:
    """Propagate the labels of the support set, M = (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2.

    Args:
        W: symmetric similarities of the points, support first, `[B, N, N]`.
        one_hot: labels of the support set, `[B, k, m]`.
        alpha: how far labels spread, below 1.

    Returns:
        log M of the queries, `[B, n, k]`.
    """
    m, tiny = one_hot.shape[-1], torch.finfo(W.dtype).tiny
    root = W.sum(-1, keepdim=True).clamp_min(tiny).rsqrt()
    system = -alpha * root * W * root.mT
    system.diagonal(dim1=1, dim2=2).add_(1)
    Y = F.pad(one_hot, (0, W.shape[-1] - m)).mT
    mass = torch.cholesky_solve(Y, torch.linalg.cholesky(system))[:, m:]
    return mass.clamp_min(tiny).log()


def rectified(A: Tensor, products: Tensor, one_hot: Tensor, scale: float = 10.0) -> Tensor:
    """Move the prototypes towards the queries nearest to them (BD-CSPN).

    Jinlu Liu, Liang Song and Yongqiang Qin. "Prototype Rectification for Few-Shot Learning." ECCV 2020.

    Prototype j becomes the mean of its support examples and of the queries nearest to it, with weights softmax(scale
    cos)_j.

    Args:
        A: coefficients of the prototypes so far, `[B, k, N]`.
        products: inner products of the points, support first, `[B, N, N]`.
        one_hot: labels of the support set, `[B, k, m]`.
        scale: inverse temperature of the weights.

    Returns:
        Coefficients of the new prototypes, `[B, k, N]`.
    """
    inner = A @ products
    lengths = (A * inner).sum(-1, keepdim=True) * products.diagonal(dim1=1, dim2=2).unsqueeze(1)
    cosine = inner * lengths.clamp_min(1e-12).rsqrt()
    nearest = (cosine == cosine.amax(1, keepdim=True)).to(A)[..., one_hot.shape[-1] :]
    return mean_weights(torch.cat([one_hot, nearest], -1) * (scale * cosine).softmax(1))


def neighbour_graph(similarity: Tensor, neighbours: int) -> Tensor:
    """Return the graph of nearest neighbours.

    Args:
        similarity: similarities of the points, `[B, N, N]`.
        neighbours: number of neighbours of each point, which is no neighbour of its own.

    Returns:
        Boolean `[B, N, N]`, whose row i is True at the points most similar to i.
    """
    others = similarity.clone()
    others.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    nearest = others.topk(min(neighbours, others.shape[-1] - 1), -1).indices
    return torch.zeros_like(others, dtype=torch.bool).scatter_(-1, nearest, True)
