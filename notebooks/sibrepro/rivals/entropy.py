"""Classifiers that descend: a loss on the support set, with the entropies of the queries' answers."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from sibrepro.rivals.base import MovingCentres, squared_distances


class TIM(MovingCentres):
    """Transductive information maximisation, with the alternating direction method (TIM-ADM).

    min_w ce CE(support) - H(mean_q p_q) + alpha mean_q H(p_q) with p = softmax(-temperature / 2 ||x - w_j||^2), by
        q_qj ~ p_qj^(1 + alpha) / (sum_q p_qj^(1 + alpha))^(1/2), scaled to the sum 1 over j, and
        w_j = sum_i c_i [t_ij x_i + p_ij (w_j - x_i)] / sum_i c_i t_ij,
    where t is y and c = ce / (1 + alpha) on the support set, t = q and c = m / n on the queries (Proposition 1).
    All as published. H(mean_q p_q) is largest for balanced queries, which TIM so assumes.
    """

    title = "TIM-ADM"
    paper = "Boudiaf et al., 2020"
    defaults: ClassVar = {"temperature": 15.0, "ce": 0.1, "alpha": 0.1, "steps": 150}
    grid: ClassVar = {"temperature": (5.0, 7.5, 15.0, 30.0), "ce": (0.1, 1.0)}

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
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


class AlphaTIM(TIM):
    """TIM with Tsallis's alpha-entropies in place of Shannon's: it does not insist on balanced queries.

    min_w CE(support) - H(mean_q p_q) + mean_q H(p_q), H(p) = (1 - sum_j p_j^alpha) / (alpha - 1), and as in TIM
    p = softmax(-temperature / 2 ||x - w_j||^2), w_j from the class means. alpha = 1 is Shannon's entropy, hence TIM;
    the larger alpha, the less H(mean_q p_q) minds a class of few queries. Published with alpha = 2 for one shot and 7
    for more, by 1000 steps of Adam; here by plain gradient descent with steps of lr / temperature, which goes about as
    far down, and needs inner products alone.
    """

    title = "α-TIM"
    paper = "Veilleux et al., 2021"
    defaults: ClassVar = {"alpha": 2.0, "temperature": 15.0, "lr": 1.0, "steps": 150}
    grid: ClassVar = {"alpha": (1.5, 2.0, 5.0), "temperature": (5.0, 7.5, 15.0)}

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        return A - self.lr / self.temperature * self.gradient(A, products, right)

    def gradient(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        """Of the objective by w_j, as weights of the points: A [B, k, N], products [B, N, N], right [B, k, m].

        dH/dp_j = -alpha log_alpha p_j up to a constant, and the softmax takes constants off.
        """
        m, n = right.shape[-1], A.shape[-1] - right.shape[-1]
        log_p = self.logits(A, products).log_softmax(1)
        p, log_of_queries = log_p.exp(), log_p[..., m:]
        log_mean = log_of_queries.logsumexp(-1, keepdim=True) - math.log(n)
        by_p = self.alpha / n * (self.log_alpha(log_mean) - self.log_alpha(log_of_queries))
        of_queries = p[..., m:] * (by_p - (p[..., m:] * by_p).sum(1, keepdim=True))
        error = torch.cat([(p[..., :m] - right) / m, of_queries], -1)  # by the logits
        return self.temperature * (error - error.sum(-1, keepdim=True) * A)

    def log_alpha(self, log_p: Tensor) -> Tensor:
        """(p^(alpha - 1) - 1) / (alpha - 1), which is log p for alpha = 1."""
        return log_p if self.alpha == 1 else torch.expm1((self.alpha - 1) * log_p) / (self.alpha - 1)


class TransductiveFineTuning(MovingCentres):
    """Cross-entropy on the support set plus Shannon entropy of the queries, by gradient descent on a cosine head.

    min_w mean_i -log p(y_i | x_i) + entropy mean_q H(p(. | x_q)),  p = softmax(scale cos(x, w_j)),  w_j from the class
    means. Dhillon et al. tune the whole network so, with 25 steps of Adam; here features are frozen and the steps are
    plain gradient descent of a size to be tuned. Nothing asks for balanced queries, but nothing keeps the entropy from
    emptying a class either: with soft probabilities (a small scale) it does so in a few large steps.
    """

    title = "Transductive fine-tuning"
    paper = "Dhillon et al., 2020"
    defaults: ClassVar = {"lr": 0.03, "entropy": 1.0, "steps": 25, "scale": 50.0}
    grid: ClassVar = {"lr": (0.003, 0.01, 0.03, 0.1), "scale": (10.0, 50.0)}

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        return A - self.lr * self.gradient(A, products, right)

    def gradient(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        """Of the loss by w_j, as weights of the points: A [B, k, N], products [B, N, N], right [B, k, m] -> [B, k, N].

        dH/dlogit_j = -p_j (log p_j + H), and dcos(x_i, w_j)/dw_j = (x_i - cos(x_i, w_j) w_j / ||w_j||) / ||w_j||.
        """
        m, n = right.shape[-1], A.shape[-1] - right.shape[-1]
        cosine, norm = _cosine_and_norm(A, products)
        log_p = (self.scale * cosine).log_softmax(1)
        p = log_p.exp()
        negative_entropy = (p * log_p)[..., m:].sum(1, keepdim=True)
        of_queries = -p[..., m:] * (log_p[..., m:] - negative_entropy)
        error = self.scale * torch.cat([(p[..., :m] - right) / m, self.entropy / n * of_queries], -1)
        return (error - (error * cosine).sum(-1, keepdim=True) * A / norm) / norm

    def logits(self, A: Tensor, products: Tensor) -> Tensor:
        return self.scale * _cosine_and_norm(A, products)[0]


def _cosine_and_norm(A: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """cos(x_i, w_j) [B, k, N] and ||w_j|| [B, k, 1] for unit x_i and w_j = sum_i A_ji x_i."""
    inner = A @ products
    norm = (A * inner).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
    return inner / norm, norm
