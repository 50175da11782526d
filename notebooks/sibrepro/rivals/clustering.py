"""Clusters of the queries: class centres move to where the queries are, and queries follow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import Baseline, Head, MovingCentres, gram, shares, squared_distances


class SoftKMeans(MovingCentres):
    """Queries as unlabelled points refine the prototypes, as in semi-supervised Prototypical Networks.

    z_qj = softmax_j(-scale ||x_q - c_j||^2), then c_j is the mean of its support examples and of all queries with the
    weights z_qj: EM for a mixture of equal spheres, so its likelihood never falls. Published with one step, on
    unlabelled images apart from the queries, and with scale = 1 on raw features. Classes of equal weight are assumed.
    """

    title = "Soft k-means"
    paper = "Ren et al., 2018"
    defaults: ClassVar = {"scale": 10.0, "steps": 20}
    grid: ClassVar = {"scale": (3.0, 5.0, 10.0, 20.0), "steps": (1, 20)}

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        return shares(self.labels(A, products, right))

    def labels(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        """Of all points, [B, k, N]: those of the support set, and z."""
        return torch.cat([right, self.logits(A, products)[..., right.shape[-1] :].softmax(1)], -1)


class ProtoLP(SoftKMeans):
    """Soft k-means whose assignments are smoothed by label propagation before they move the prototypes.

    Points are centred on their mean and scaled to length 1 again. Z [N, k] are the labels of the support, and
    softmax(-scale ||x_q - c_j||^2) for queries. W = Z D^-1 Z^T with D = diag(sum_i Z_i) joins points that share
    prototypes, and these get labels
        Y = argmin ||Z_S Y - Y_S||^2 + smoothing tr (Z Y)^T (I - W) (Z Y),
    a k x k system; c_j moves by the fraction `alpha` towards the mean with weights beta Z Y + (1 - beta) Z. Published
    also with a transport plan for Z, where queries are known to be balanced, and then with a power transform. Left out
    of the authors' code: features reduced to 40 principal components, and first prototypes of length 1.
    """

    title = "protoLP"
    paper = "Zhu and Koniusz, 2023"
    defaults: ClassVar = {"scale": 10.0, "smoothing": 0.05, "alpha": 0.2, "beta": 0.7, "steps": 50}
    grid: ClassVar = {"scale": (5.0, 10.0, 20.0), "smoothing": (0.05, 1.0, 10.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, points = support.shape[1], torch.cat([support, query], 1)
        points = unit(points - points.mean(1, keepdim=True))
        return super().answer(points[:, :m], support_labels, points[:, m:])

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        Z = self.labels(A, products, right)
        weights = self.beta * self.propagate(Z, right) + (1 - self.beta) * Z
        return A + self.alpha * (shares(weights) - A)

    def propagate(self, Z: Tensor, right: Tensor) -> Tensor:
        """The labels Z Y of all points, within [0, 1]: Z [B, k, N], right [B, k, m] -> [B, k, N]."""
        overlap = Z @ Z.mT
        roughness = overlap - overlap / Z.sum(-1).unsqueeze(1) @ overlap
        counts = torch.diag_embed(right.sum(-1))  # Z_S^T Z_S, and Z_S^T Y_S too
        Y = torch.linalg.solve(counts + self.smoothing * roughness, counts)
        return (Y.mT @ Z).clamp(0, 1)


class PADDLE(Baseline):
    """Primal-dual minimum description length: soft k-means that pays for the complexity of its partition.

    min_u,c  scale [sum_q u_qj ||x_q - c_j||^2 + the same for the support set with its labels] + sum_q u_qj log u_qj
             - penalty n sum_j pi_j log pi_j,   pi = mean_q u_q,
    by steps that never raise it: u_q ~ pi^penalty exp(-scale ||x_q - c_j||^2), the concave last term being replaced by
    its tangent, then pi, then centres c. Classes of few queries lose them, so nothing asks for balance. penalty = 0 is
    soft k-means, penalty = 1 (as published, where it is lambda = n) is EM for a mixture with free proportions. The
    publication has scale = 1 / 2 on features stretched to [0, 1] in each dimension; unit features need more.
    """

    title = "PADDLE"
    paper = "Martin et al., 2022"
    transductive = True
    defaults: ClassVar = {"penalty": 1.0, "scale": 40.0, "steps": 100}
    grid: ClassVar = {"penalty": (0.5, 1.0), "scale": (10.0, 20.0, 40.0, 80.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        return em(gram(support, query), right, itertools.repeat((self.scale, self.penalty), self.steps)).mT


class UNEM(Head):
    """Unrolled generalised EM with spheres for classes (UNEM-Gaussian): PADDLE with an entropy's weight, learned.

    Layer l of `layers` has u_q ~ exp([penalty_l log pi - scale ||x_q - c_j||^2] / T_l), then pi and the centres as in
    PADDLE; penalty_l > 0 for the balance of classes, T_l > 1 for the softness of answers and one scale > 0 are all that
    is learned, 2 `layers` + 1 numbers. As published: softplus keeps them positive, ten layers, Adam with rate 0.1.
    Departures: the scale's logarithm is learned, because unit features need a large one, and the loss is the
    cross-entropy of u (the authors' code takes u itself for logits). `scale` and `penalty` are where learning starts.
    """

    title = "UNEM"
    paper = "Zhou et al., 2025"
    transductive = True
    defaults: ClassVar = {"layers": 10, "scale": 20.0, "penalty": 1.0}

    def build(self) -> None:
        self.log_scale = nn.Parameter(torch.tensor(math.log(self.scale)))
        self.raw_penalty = nn.Parameter(torch.full((self.layers,), math.log(math.expm1(self.penalty))))
        self.raw_softness = nn.Parameter(torch.full((self.layers,), -2.0))  # T = 1.13: near plain EM

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        T = 1 + F.softplus(self.raw_softness)
        steps = zip(self.log_scale.exp() / T, F.softplus(self.raw_penalty) / T, strict=True)
        return em(gram(support, query), self.membership(support, support_labels), steps).mT


class OptimalTransportMAP(Baseline):
    """PT-MAP: power transform, then queries shared out among the classes by optimal transport.

    x -> x^power, scaled to length 1; support and queries each centred on their own mean and scaled again. Repeat: P is
    the plan with the least <P, ||x_q - c_j||^2> - H(P) / strength that gives 1 to every query and n / k to every class
    (Sinkhorn); c_j moves by the fraction `alpha` towards the mean of its support and of the queries with weights P.
    As published, but negative coordinates keep their sign, |x|^power sign(x), and Sinkhorn is not run to the end: each
    step does `sinkhorn` iterations from where the last one stopped. Assumes balanced queries, and enforces them.
    """

    title = "PT-MAP"
    paper = "Hu et al., 2021"
    transductive = True
    defaults: ClassVar = {"strength": 10.0, "alpha": 0.2, "power": 0.5, "steps": 20, "sinkhorn": 10}
    grid: ClassVar = {"strength": (5.0, 10.0, 20.0), "alpha": (0.2, 0.4)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        right = self.membership(support, support_labels)
        products = gram(self.transform(support), self.transform(query))
        A = shares(F.pad(right, (0, n)))
        prices = torch.ones_like(right[..., :1])
        for _ in range(self.steps):
            log_plan, prices = self.plan(squared_distances(A, products)[..., m:], prices)
            A = A + self.alpha * (shares(torch.cat([right, log_plan.exp()], -1)) - A)
        return self.plan(squared_distances(A, products)[..., m:], prices)[0].mT

    def transform(self, features: Tensor) -> Tensor:
        """Unit features [B, n, d] -> [B, n, d], more like a Gaussian's."""
        powered = unit(features.abs().pow(self.power) * features.sign())
        return unit(powered - powered.mean(1, keepdim=True))

    def plan(self, cost: Tensor, prices: Tensor) -> tuple[Tensor, Tensor]:
        """log P [B, k, n] and the classes' scaling factors [B, k, 1], for cost [B, k, n] and factors to begin with."""
        n = cost.shape[-1]
        least = 4 * math.log(torch.finfo(cost.dtype).eps)  # far below what counts, and exp of it does not underflow
        log_kernel = (self.strength * (cost.amin(1, keepdim=True) - cost)).clamp_min(least)
        kernel = log_kernel.exp()
        for _ in range(self.sinkhorn):
            prices = n / self.ways / (kernel / (kernel * prices).sum(1, keepdim=True)).sum(-1, keepdim=True)
        return (log_kernel + prices.log()).log_softmax(1), prices


def em(products: Tensor, right: Tensor, steps: Iterable[tuple[Any, Any]]) -> Tensor:
    """Logits of u [B, k, n] after steps of (scale, penalty), for products [B, N, N] and labels right [B, k, m]."""
    m, n = right.shape[-1], products.shape[-1] - right.shape[-1]
    A, log_pi = shares(F.pad(right, (0, n))), 0.0  # equal proportions to begin with
    for scale, penalty in steps:
        logits = penalty * log_pi - scale * squared_distances(A, products)[..., m:]
        log_u = logits.log_softmax(1)
        log_pi = log_u.logsumexp(-1, keepdim=True)  # log of n pi, and n does not matter to any u
        A = shares(torch.cat([right, log_u.exp()], -1))
    return logits
