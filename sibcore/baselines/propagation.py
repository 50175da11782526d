"""Graphs over a task's points: labels spread along edges between neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from sibcore.baselines.base import Baseline, gram, shares, squared_distances, with_queries
from sibcore.sib import unit


class LabelPropagation(Baseline):
    """Label propagation in closed form, the inference of the Transductive Propagation Network.

    F = (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2 and W_ij = exp(-||x_i - x_j||^2 / (2 sigma^2)) between each point
    and its nearest `neighbours`, symmetrised; p is F scaled to the sum 1. TPN learns sigma for each point, here it is
    one constant for all; the diagonal of W is zero (Zhou et al., 2004). Assumes clusters, and queries that are not
    too unbalanced: a large class is reached by more paths.
    """

    title = "Label propagation (TPN)"
    paper = "Liu et al., 2019"
    transductive = True
    grid = {"sigma": (0.15, 0.25, 0.4), "alpha": (0.5, 0.9)}  # noqa: RUF012

    def __init__(self, ways: int, *, sigma: float = 0.25, alpha: float = 0.99, neighbours: int = 20) -> None:
        super().__init__(ways, sigma=sigma, alpha=alpha, neighbours=neighbours)
        if not alpha < 1:
            raise ValueError(f"alpha = {alpha}: expected a number in (0, 1), else I - alpha S has no inverse")

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        products = gram(support, query)
        near = neighbour_graph(products, self.neighbours)
        W = ((products - 1) / self.sigma**2).exp() * (near | near.mT)  # ||x_i - x_j||^2 = 2 - 2 cos
        tiny = torch.finfo(W.dtype).tiny
        root = W.sum(-1, keepdim=True).clamp_min(tiny).rsqrt()
        system = -self.alpha * root * W * root.mT
        system.diagonal(dim1=1, dim2=2).add_(1)
        Y = with_queries(self.membership(support, support_labels), 0.0, n).mT
        F = torch.cholesky_solve(Y, torch.linalg.cholesky(system))[:, m:]
        return F.clamp_min(tiny).log()


class LaplacianShot(Baseline):
    """Nearest prototypes with a Laplacian penalty: queries that are neighbours should have the same label.

    E(Y) = sum_q y_q log y_q + y_q a_q - laplacian / 2 sum_qp w_qp y_q y_p, with a_qj = scale ||x_q - c_j||^2 and w the
    graph of nearest `neighbours`; bound updates y_q = softmax(-a_q + laplacian sum_p w_qp y_p). Published: features
    centred on the training classes' mean (a method here sees one task), scale = 1, and a one-sided graph, here
    averaged with its transpose, without which E is not what the updates lower. `rectify` moves the prototypes as
    published (Liu et al., 2020, BD-CSPN), which assumes that support and query have the same mean: balanced queries.
    """

    title = "LaplacianShot"
    paper = "Ziko et al., 2020"
    transductive = True
    grid = {"laplacian": (0.1, 0.3, 0.7, 1.0), "rectify": (True, False)}  # noqa: RUF012

    def __init__(
        self,
        ways: int,
        *,
        laplacian: float = 0.7,
        neighbours: int = 3,
        rectify: bool = True,
        scale: float = 1.0,
        steps: int = 20,
    ) -> None:
        super().__init__(ways, laplacian=laplacian, neighbours=neighbours, scale=scale, steps=steps)
        self.rectify = rectify

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        if self.rectify:
            query = query + support.mean(1, keepdim=True) - query.mean(1, keepdim=True)
            prototypes = rectified(support, right, query)
        else:
            prototypes = shares(right) @ support
        a = self.scale * torch.cdist(prototypes, query).square()  # [B, k, n]
        near = neighbour_graph(query @ query.mT, self.neighbours).to(query)
        w = (near + near.mT) / 2
        return self.updates(a, w).mT

    def updates(self, a: Tensor, w: Tensor) -> Tensor:
        """The logits [B, k, n] after all bound updates, from a [B, k, n] and a symmetric w [B, n, n]."""
        logits = -a
        for _ in range(self.steps):
            logits = -a + self.laplacian * logits.softmax(1) @ w
        return logits


def rectified(support: Tensor, right: Tensor, query: Tensor, scale: float = 10.0) -> Tensor:
    """Prototypes [B, k, d] of BD-CSPN: means over all points nearest to class j, with weights softmax(scale cos)_j.

    right [B, k, m] marks the labels of the support [B, m, d], which count with their own class.
    """
    points = torch.cat([support, query], 1)
    cosine = unit(shares(right) @ support) @ unit(points).mT  # [B, k, N]
    nearest = (cosine == cosine.amax(1, keepdim=True)).to(points)
    chosen = torch.cat([right, nearest[..., right.shape[-1] :]], -1)
    return shares(chosen * (scale * cosine).softmax(1)) @ points


def neighbour_graph(similarity: Tensor, neighbours: int) -> Tensor:
    """[B, N, N] -> bool [B, N, N]: row i marks the most similar points to i, itself left out."""
    others = similarity.clone()
    others.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    nearest = others.topk(min(neighbours, others.shape[-1] - 1), -1).indices
    return torch.zeros_like(others, dtype=torch.bool).scatter_(-1, nearest, True)
