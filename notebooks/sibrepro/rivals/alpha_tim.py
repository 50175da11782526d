"""Information maximisation that does not insist on balanced queries."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from sibrepro.rivals.clustering import TIM


class AlphaTIM(TIM):
    """TIM with Tsallis's alpha-entropies in place of Shannon's.

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
