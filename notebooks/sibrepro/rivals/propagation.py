"""Graphs over a task's points: labels spread along edges between neighbours."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import Baseline, Embedding, Head, gram, shares, silent, squared_distances


class LabelPropagation(Baseline):
    """Label propagation in closed form, the inference of the Transductive Propagation Network.

    M = (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2 and W_ij = exp(-||x_i - x_j||^2 / (2 sigma^2)) between each point
    and its nearest `neighbours`, symmetrised; p is M scaled to the sum 1. TPN learns sigma for each point and has
    alpha = 0.99; with one constant sigma so large an alpha lets the class win whose support has the most neighbours,
    hence a smaller one. The diagonal of W is zero (Zhou et al., 2004). Assumes that classes are clusters.
    """

    title = "Label propagation (TPN)"
    paper = "Liu et al., 2019"
    transductive = True
    defaults: ClassVar = {"sigma": 0.3, "alpha": 0.7, "neighbours": 20}
    grid: ClassVar = {"sigma": (0.25, 0.4), "alpha": (0.5, 0.8), "neighbours": (10, 20)}

    def __init__(self, ways: int, **options: float) -> None:
        super().__init__(ways, **options)
        check_alpha(self.alpha)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        products = gram(support, query)
        near = neighbour_graph(products, self.neighbours)
        W = ((products - 1) / self.sigma**2).exp() * (near | near.mT)  # ||x_i - x_j||^2 = 2 - 2 cos
        return propagated(W, self.membership(support, support_labels), self.alpha)


class TPN(Head):
    """Label propagation (`LabelPropagation`) with W_ij = exp(-||f(x_i) / sigma_i - f(x_j) / sigma_j||^2 / 2).

    sigma_i = exp(h(f(x_i))), where h is a small network and f an embedding; both are learned, and start from one
    sigma. Logits are scale log M with a scale to learn (the publication has none): M alone is too soft, and training
    would sharpen it by bending the graph. As in `LabelPropagation`, alpha is below the published 0.99. Left out on
    frozen features: h reads f(x_i) where the publication has convolutions, and all layers below f are not trained.
    """

    title = "TPN"
    paper = "Liu et al., 2019"
    transductive = True
    defaults: ClassVar = {"alpha": 0.7, "neighbours": 20, "width": 64}

    def build(self) -> None:
        check_alpha(self.alpha)
        self.embed = Embedding(self.dim, self.width)
        self.h = nn.Sequential(nn.Linear(self.dim, self.width), nn.ReLU(), silent(nn.Linear(self.width, 1)))
        nn.init.constant_(self.h[-1].bias, math.log(0.3))
        self.log_scale = nn.Parameter(torch.tensor(2.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        W = self.graph(torch.cat([self.embed(support), self.embed(query)], 1))
        return self.log_scale.exp() * propagated(W, self.membership(support, support_labels), self.alpha)

    def graph(self, points: Tensor) -> Tensor:
        """W [B, N, N] of the points f(x) [B, N, d]."""
        scaled = points / self.h(points).exp()
        products = scaled @ scaled.mT
        lengths = products.diagonal(dim1=1, dim2=2) / 2
        logs = products - lengths.unsqueeze(1) - lengths.unsqueeze(2)
        near = neighbour_graph(logs.detach(), self.neighbours)
        return logs.exp() * (near | near.mT)


class LaplacianShot(Baseline):
    """Nearest prototypes with a Laplacian penalty: queries that are neighbours should have the same label.

    E(Y) = sum_q y_q log y_q + y_q a_q - laplacian / 2 sum_qp w_qp y_q y_p, with a_qj = scale ||x_q - c_j||^2 and w the
    graph of nearest `neighbours`; bound updates y_q = softmax(-a_q + laplacian sum_p w_qp y_p). As published,
    `laplacian` is to be tuned, and `rectify` moves the prototypes first (BD-CSPN, Liu et al., 2020), which assumes
    that support and queries have the same mean: balanced queries. Departures: features are not centred on the mean of
    the training classes (a method here sees one task), and the graph is averaged with its transpose, because the
    updates lower E only if w is symmetric.
    """

    title = "LaplacianShot"
    paper = "Ziko et al., 2020"
    transductive = True
    defaults: ClassVar = {"laplacian": 0.7, "neighbours": 3, "rectify": True, "scale": 1.0, "steps": 20}
    grid: ClassVar = {"laplacian": (0.1, 0.3, 0.5, 0.7), "rectify": (True, False)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        right = self.membership(support, support_labels)
        near = neighbour_graph(query @ query.mT, self.neighbours).to(query)
        if self.rectify:
            query = query + support.mean(1, keepdim=True) - query.mean(1, keepdim=True)
        products = gram(support, query)
        A = shares(F.pad(right, (0, n)))
        if self.rectify:
            A = rectified(A, products, right)
        a = self.scale * squared_distances(A, products)[..., m:]
        return self.updates(a, (near + near.mT) / 2).mT

    def updates(self, a: Tensor, w: Tensor) -> Tensor:
        """The logits [B, k, n] after all bound updates, from a [B, k, n] and a symmetric w [B, n, n]."""
        logits = -a
        for _ in range(self.steps):
            logits = -a + self.laplacian * logits.softmax(1) @ w
        return logits


def check_alpha(alpha: float) -> None:
    if not alpha < 1:
        raise ValueError(f"alpha = {alpha}: expected a number in (0, 1), else I - alpha S has no inverse")


def propagated(W: Tensor, right: Tensor, alpha: float) -> Tensor:
    """log M [B, n, k] of the queries, M = (I - alpha S)^-1 Y, from a graph W [B, N, N] and right [B, k, m]."""
    m, tiny = right.shape[-1], torch.finfo(W.dtype).tiny
    root = W.sum(-1, keepdim=True).clamp_min(tiny).rsqrt()
    system = -alpha * root * W * root.mT
    system.diagonal(dim1=1, dim2=2).add_(1)
    Y = F.pad(right, (0, W.shape[-1] - m)).mT
    mass = torch.cholesky_solve(Y, torch.linalg.cholesky(system))[:, m:]
    return mass.clamp_min(tiny).log()


def rectified(A: Tensor, products: Tensor, right: Tensor, scale: float = 10.0) -> Tensor:
    """BD-CSPN: prototype j is the mean of its support and the queries nearest to it, weighted by softmax(scale cos)_j.

    A [B, k, N] gives the prototypes so far, products [B, N, N] are of all points, right [B, k, m] marks the labels.
    """
    inner = A @ products
    lengths = (A * inner).sum(-1, keepdim=True) * products.diagonal(dim1=1, dim2=2).unsqueeze(1)
    cosine = inner * lengths.clamp_min(1e-12).rsqrt()
    nearest = (cosine == cosine.amax(1, keepdim=True)).to(A)[..., right.shape[-1] :]
    return shares(torch.cat([right, nearest], -1) * (scale * cosine).softmax(1))


def neighbour_graph(similarity: Tensor, neighbours: int) -> Tensor:
    """[B, N, N] -> bool [B, N, N]: row i marks the most similar points to i, itself left out."""
    others = similarity.clone()
    others.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    nearest = others.topk(min(neighbours, others.shape[-1] - 1), -1).indices
    return torch.zeros_like(others, dtype=torch.bool).scatter_(-1, nearest, True)
