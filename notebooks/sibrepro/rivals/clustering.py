"""Clusters of the queries: class centres move to where the queries are, and queries follow."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sibcore.sib import unit
from sibrepro.rivals.base import Baseline, gram, shares, squared_distances


class SoftKMeans(Baseline):
    """Queries as unlabelled points refine the prototypes, as in semi-supervised Prototypical Networks.

    z_qj = softmax_j(-scale ||x_q - c_j||^2), then c_j is the mean of its support examples and of all queries with the
    weights z_qj: EM for a mixture of equal spheres, so its likelihood never falls. Published with one step, on
    unlabelled images apart from the queries, and with scale = 1 on raw features. Classes of equal weight are assumed.
    """

    title = "Soft k-means"
    paper = "Ren et al., 2018"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "steps": 20}
    grid: ClassVar = {"scale": (3.0, 5.0, 10.0, 20.0), "steps": (1, 20)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        products, right = gram(support, query), self.membership(support, support_labels)
        return self.logits(self.coefficients(products, right), products)[..., support.shape[1] :].mT

    def coefficients(self, products: Tensor, right: Tensor) -> Tensor:
        """A [B, k, N] with c_j = sum_i A_ji x_i, from products [B, N, N] and right [B, k, m], the labels' one-hot."""
        m, n = right.shape[-1], products.shape[-1] - right.shape[-1]
        A = shares(F.pad(right, (0, n)))
        for _ in range(self.steps):
            z = self.logits(A, products)[..., m:].softmax(1)
            A = shares(torch.cat([right, z], -1))
        return A

    def logits(self, A: Tensor, products: Tensor) -> Tensor:
        return -self.scale * squared_distances(A, products)


class TIM(Baseline):
    """Transductive information maximisation, with the alternating direction method (TIM-ADM).

    min_w ce CE(support) - H(mean_q p_q) + alpha mean_q H(p_q) with p = softmax(-temperature / 2 ||x - w_j||^2), by
        q_qj ~ p_qj^(1 + alpha) / (sum_q p_qj^(1 + alpha))^(1/2), scaled to the sum 1 over j, and
        w_j = sum_i c_i [t_ij x_i + p_ij (w_j - x_i)] / sum_i c_i t_ij,
    where t is y and c = ce / (1 + alpha) on the support set, t = q and c = m / n on the queries (Proposition 1).
    All as published. H(mean_q p_q) is largest for balanced queries, which TIM so assumes.
    """

    title = "TIM-ADM"
    paper = "Boudiaf et al., 2020"
    transductive = True
    defaults: ClassVar = {"temperature": 15.0, "ce": 0.1, "alpha": 0.1, "steps": 150}
    grid: ClassVar = {"temperature": (5.0, 7.5, 15.0, 30.0), "ce": (0.1, 1.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        right = self.membership(support, support_labels)
        products = gram(support, query)
        A = shares(F.pad(right, (0, n)))
        for _ in range(self.steps):
            A = self.step(A, products, right)
        return self.logits(A, products)[..., m:].mT

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        """Both updates: A [B, k, N], products [B, N, N], right [B, k, m] -> A [B, k, N]."""
        m, n = right.shape[-1], A.shape[-1] - right.shape[-1]
        log_p = self.logits(A, products).log_softmax(1)
        p = log_p.exp()
        log_q = (1 + self.alpha) * log_p[..., m:]
        q = (log_q - log_q.logsumexp(-1, keepdim=True) / 2).softmax(1)
        c = A.new_full((m + n,), m / n)
        c[:m] = self.ce / (1 + self.alpha)
        wanted, got = c * torch.cat([right, q], -1), c * p
        return (wanted - got + got.sum(-1, keepdim=True) * A) / wanted.sum(-1, keepdim=True)

    def logits(self, A: Tensor, products: Tensor) -> Tensor:
        return -self.temperature / 2 * squared_distances(A, products)


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
