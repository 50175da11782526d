"""Linear and cosine classifiers fitted to a task by gradient descent, with the gradients in closed form."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sibrepro.rivals.base import Baseline, gram, shares


class LogisticRegression(Baseline):
    """A linear softmax classifier fitted to the support set ("Baseline" of Chen et al.; RFS of Tian et al., 2020).

    min_W ||W||^2 / 2 + C sum_i -log softmax(W x_i)_{y_i}, no intercept, by Nesterov's accelerated gradient. The
    condition number is at most 1 + C m / 2 for unit features, which gives the step, the momentum and the number of
    iterations that bring the error below `tolerance` times the first; Chen et al. stop SGD after 100 epochs instead,
    Tian et al. solve the same problem with C = 1.
    """

    title = "Logistic regression"
    paper = "Chen et al., 2019"
    transductive = False
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


class TransductiveFineTuning(Baseline):
    """Cross-entropy on the support set plus Shannon entropy of the queries, by gradient descent on a cosine head.

    min_w mean_i -log p(y_i | x_i) + entropy mean_q H(p(. | x_q)),  p = softmax(scale cos(x, w_j)),  w_j from the class
    means. Dhillon et al. tune the whole network so, with 25 steps of Adam; here features are frozen and the steps are
    plain gradient descent of a size to be tuned. Nothing asks for balanced queries, but nothing keeps the entropy from
    emptying a class either: with soft probabilities (a small scale) it does so in a few large steps.
    """

    title = "Transductive fine-tuning"
    paper = "Dhillon et al., 2020"
    transductive = True
    defaults: ClassVar = {"lr": 0.03, "entropy": 1.0, "steps": 25, "scale": 50.0}
    grid: ClassVar = {"lr": (0.003, 0.01, 0.03, 0.1), "scale": (10.0, 50.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        m, n = support.shape[1], query.shape[1]
        products = gram(support, query)
        A = F.pad(shares(right), (0, n))
        for _ in range(self.steps):
            A = A - self.lr * self.gradient(A, products, right)
        cosine, _ = _cosine_and_norm(A, products)
        return self.scale * cosine[..., m:].mT

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


def _cosine_and_norm(A: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """cos(x_i, w_j) [B, k, N] and ||w_j|| [B, k, 1] for unit x_i and w_j = sum_i A_ji x_i."""
    inner = A @ products
    norm = (A * inner).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
    return inner / norm, norm
