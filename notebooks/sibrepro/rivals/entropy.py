"""Methods that minimise a loss on the support set together with entropies of the predictions for the queries.

Shapes: B tasks, k ways, m support examples, n queries, N = m + n points, d dimensions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from sibrepro.rivals.base import MovingCentres, squared_distances


class TIM(MovingCentres):
    """TIM-ADM: transductive information maximisation, by the alternating direction method.

    Malik Boudiaf, Imtiaz Masud Ziko, Jérôme Rony, José Dolz, Pablo Piantanida and Ismail Ben Ayed. "Information
    Maximization for Few-Shot Learning." NeurIPS 2020.

    With p = softmax(-temperature / 2 ||x - w_j||^2), the class weights w minimise

        ce CE(support) - H(mean_q p_q) + alpha mean_q H(p_q)

    by alternating two updates (the publication's Proposition 1):

        q_qj ~ p_qj^(1 + alpha) / (sum_q p_qj^(1 + alpha))^(1/2), scaled to the sum 1 over j,
        w_j = sum_i c_i [t_ij x_i + p_ij (w_j - x_i)] / sum_i c_i t_ij.

    On the support set t is the one-hot label and c = ce / (1 + alpha). On the queries t = q and c = m / n.
    H(mean_q p_q) is largest for balanced queries, so TIM assumes them. All of this is as published.

    Args:
        temperature: inverse temperature of the predictions.
        ce: weight of the cross-entropy on the support set.
        alpha: weight of the entropy of each prediction.
        steps: number of iterations.
    """

    title = "TIM-ADM"
    paper = "Boudiaf et al., 2020"
    defaults: ClassVar = {"temperature": 15.0, "ce": 0.1, "alpha": 0.1, "steps": 150}
    grid: ClassVar = {"temperature": (5.0, 7.5, 15.0, 30.0), "ce": (0.1, 1.0)}

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        m, n = one_hot.shape[-1], A.shape[-1] - one_hot.shape[-1]
        log_p = self.point_logits(A, products).log_softmax(1)
        p = log_p.exp()
        log_q = (1 + self.alpha) * log_p[..., m:]
        q = (log_q - log_q.logsumexp(-1, keepdim=True) / 2).softmax(1)
        c = A.new_full((m + n,), m / n)
        c[:m] = self.ce / (1 + self.alpha)
        wanted, predicted = c * torch.cat([one_hot, q], -1), c * p
        moved = wanted - predicted + predicted.sum(-1, keepdim=True) * A
        return moved / wanted.sum(-1, keepdim=True)

    def point_logits(self, A: Tensor, products: Tensor) -> Tensor:
        return -self.temperature / 2 * squared_distances(A, products)


class AlphaTIM(TIM):
    """α-TIM: TIM with Tsallis's alpha-entropies in place of Shannon's, so that queries may be unbalanced.

    Olivier Veilleux, Malik Boudiaf, Pablo Piantanida and Ismail Ben Ayed. "Realistic Evaluation of Transductive
    Few-Shot Learning." NeurIPS 2021.

    The class weights minimise CE(support) - H(mean_q p_q) + mean_q H(p_q) with H(p) = (1 - sum_j p_j^alpha) / (alpha -
    1). As in TIM, p = softmax(-temperature / 2 ||x - w_j||^2), and w_j starts from the class means. alpha = 1 is
    Shannon's entropy, hence TIM. The larger alpha is, the less H(mean_q p_q) penalises a class of few queries. The
    publication has alpha = 2 for one shot and 7 for more.

    Departure: plain gradient descent in place of 1000 steps of Adam. It descends about as far and needs only inner
    products.

    Args:
        alpha: order of the entropies.
        temperature: inverse temperature of the predictions.
        lr: learning rate times `temperature`.
        steps: number of gradient steps.
    """

    title = "α-TIM"
    paper = "Veilleux et al., 2021"
    defaults: ClassVar = {"alpha": 2.0, "temperature": 15.0, "lr": 1.0, "steps": 150}
    grid: ClassVar = {"alpha": (1.5, 2.0, 5.0), "temperature": (5.0, 7.5, 15.0)}

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        return A - self.lr / self.temperature * self.gradient(A, products, one_hot)

    def gradient(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        """Return the gradient of the objective with respect to w_j, as coefficients of the points, `[B, k, N]`.

        Up to a constant, dH/dp_j = -alpha log_alpha p_j, and the softmax removes constants.
        """
        m, n = one_hot.shape[-1], A.shape[-1] - one_hot.shape[-1]
        log_p = self.point_logits(A, products).log_softmax(1)
        p_support, p_query = log_p.exp().tensor_split([m], -1)
        log_p_query = log_p[..., m:]
        log_mean = log_p_query.logsumexp(-1, keepdim=True) - math.log(n)
        by_p = self.alpha / n * (self.log_alpha(log_mean) - self.log_alpha(log_p_query))
        of_queries = p_query * (by_p - (p_query * by_p).sum(1, keepdim=True))
        error = torch.cat([(p_support - one_hot) / m, of_queries], -1)  # gradient with respect to the logits
        return self.temperature * (error - error.sum(-1, keepdim=True) * A)

    def log_alpha(self, log_p: Tensor) -> Tensor:
        """Return Tsallis's logarithm (p^(alpha - 1) - 1) / (alpha - 1), which is log p for alpha = 1."""
        return log_p if self.alpha == 1 else torch.expm1((self.alpha - 1) * log_p) / (self.alpha - 1)


class TransductiveFineTuning(MovingCentres):
    """Transductive fine-tuning: cross-entropy on the support set plus Shannon entropy of the queries.

    Guneet S. Dhillon, Pratik Chaudhari, Avinash Ravichandran and Stefano Soatto. "A Baseline for Few-Shot Image
    Classification." ICLR 2020.

    With p = softmax(scale cos(x, w_j)), gradient descent on w from the class means minimises

        mean_i -log p(y_i | x_i) + entropy mean_q H(p(. | x_q)).

    Nothing demands balanced queries. But nothing keeps the entropy from emptying a class either: with soft predictions
    (a small scale) a few large steps do so.

    Departures: the publication tunes the whole network with 25 steps of Adam. Here features are frozen, and steps are
    plain gradient descent with a learning rate to be tuned.

    Args:
        lr: learning rate.
        entropy: weight of the entropy of the queries.
        steps: number of gradient steps.
        scale: inverse temperature of the predictions.
    """

    title = "Transductive fine-tuning"
    paper = "Dhillon et al., 2020"
    defaults: ClassVar = {"lr": 0.03, "entropy": 1.0, "steps": 25, "scale": 50.0}
    grid: ClassVar = {"lr": (0.003, 0.01, 0.03, 0.1), "scale": (10.0, 50.0)}

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        return A - self.lr * self.gradient(A, products, one_hot)

    def gradient(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        """Return the gradient of the loss with respect to w_j, as coefficients of the points, `[B, k, N]`.

        dH/dlogit_j = -p_j (log p_j + H), and dcos(x_i, w_j)/dw_j = (x_i - cos(x_i, w_j) w_j / ||w_j||) / ||w_j||.
        """
        m, n = one_hot.shape[-1], A.shape[-1] - one_hot.shape[-1]
        cosine, norm = _cosine_and_norm(A, products)
        log_p = (self.scale * cosine).log_softmax(1)
        p = log_p.exp()
        negative_entropy = (p * log_p)[..., m:].sum(1, keepdim=True)
        of_queries = -p[..., m:] * (log_p[..., m:] - negative_entropy)
        of_support = (p[..., :m] - one_hot) / m
        error = self.scale * torch.cat([of_support, self.entropy / n * of_queries], -1)
        return (error - (error * cosine).sum(-1, keepdim=True) * A / norm) / norm

    def point_logits(self, A: Tensor, products: Tensor) -> Tensor:
        return self.scale * _cosine_and_norm(A, products)[0]


def _cosine_and_norm(A: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """Return cos(x_i, w_j) `[B, k, N]` and ||w_j|| `[B, k, 1]` for unit x_i and w_j = sum_i A_ji x_i."""
    inner = A @ products
    norm = (A * inner).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
    return inner / norm, norm
