"""The corollary of Theorems 1 and 2, where l is a negative log-likelihood.

As printed: (popeb) >= n/(2 sigma²) gen(q)² + E L_t. Which right-hand side is meant depends on eq. (lik): with the plain
sum, -log p(d|w,t) = n L_t; with the printed 1/n it is L_t and a log-normaliser that eq. (lik) calls a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sibrepro.theory.bayes import LOG_2PI, kl_discrete
from sibrepro.theory.bottleneck import World, dirichlet, mutual_information_by_task
from sibrepro.theory.generalisation import Trial, random_trial, subgaussian_variance
from sibrepro.theory.synthetic_gradient import Reduction


def random_likelihood_trial(
    worlds: int, tasks: int, letters: int, n: int, weights: int, rng: np.random.Generator
) -> tuple[Trial, World]:
    """A random learner with l = -log p(z | w, t), and the same as a world with p(d | w, t) = prod_i p(z_i | w, t)."""
    p_z = dirichlet((worlds, tasks, weights, letters), rng)
    trial = replace(random_trial(worlds, tasks, letters, n, weights, rng), loss=-p_z.log())
    p_d = p_z[..., trial.sequences].prod(-1)
    world = World(q_t=trial.q_t, q_d=trial.q_d, q_w=trial.q_w, p_w=dirichlet((worlds, weights), rng), p_d=p_d)
    return trial, world


@dataclass(frozen=True)
class Terms:
    """What the corollary compares, for one world."""

    objective: float  # eq. (popeb)
    information: float  # I_q(w; d | t)
    gen: float
    sigma2: float
    risk: float  # E L_t(w, d)
    n: int

    @property
    def regulariser(self) -> float:
        """n / (2 sigma²) gen², at most I_q(w; d | t) by Theorem 2."""
        return self.n * self.gen**2 / (2 * self.sigma2)


def biased_coins(n: int, biases: Tensor, w: Tensor, reduction: Reduction) -> Terms:
    """Tasks are coins of given biases [T], weights a grid w [W] with a uniform prior, q the model's posterior.

    The number of heads is sufficient, so n may be in the hundreds and all stays exact. `reduction`: "sum" is the Bayes
    posterior, "mean" the one that the 1/n of eq. (lik) gives.
    """
    heads = torch.arange(n + 1, dtype=w.dtype)
    choose = math.lgamma(n + 1) - torch.lgamma(heads + 1) - torch.lgamma(n - heads + 1)
    q_d = (choose + heads * biases.log()[:, None] + (n - heads) * (1 - biases).log()[:, None]).exp()  # [T, n+1]
    loss = -torch.stack([(1 - w).log(), w.log()], -1)  # l(w, z), [W, 2]
    empirical = (heads[:, None] * loss[:, 1] + (n - heads)[:, None] * loss[:, 0]) / n  # L(w, d), [n+1, W]
    minus_log_p = empirical * (n if reduction == "sum" else 1)
    q_w = torch.softmax(-minus_log_p, -1)
    q_dw = q_d[..., None] * q_w
    aggregated = q_dw.sum(-2)
    q_z = torch.stack([1 - biases, biases], -1)
    table = (aggregated[..., :, None] * q_z[..., None, :]).flatten(-2)
    product = q_d[..., None] * aggregated[..., None, :]
    prior = torch.full_like(w, 1 / len(w))
    return Terms(
        objective=((q_dw * minus_log_p).sum((-2, -1)) + (q_d * kl_discrete(q_w, prior)).sum(-1)).mean().item(),
        information=mutual_information_by_task(q_dw).mean().item(),
        gen=((product - q_dw) * empirical).sum((-2, -1)).mean().item(),
        sigma2=subgaussian_variance(loss.flatten().expand(len(biases), -1), table).max().item(),
        risk=(q_dw * empirical).sum((-2, -1)).mean().item(),
        n=n,
    )


def narrow_gaussians(n: int, std: float, spread: float) -> Terms:
    """Densities, where l may be negative: q(z) = N(0, std²), p(z|w) = N(w, std²), q(w|d) = p(w) = N(0, spread²).

    The learner is deaf, so I = gen = KL = 0 and (popeb) is exactly n E L.
    """
    risk = 0.5 * (LOG_2PI + 2 * math.log(std) + (std**2 + spread**2) / std**2)
    return Terms(objective=n * risk, information=0.0, gen=0.0, sigma2=1.0, risk=risk, n=n)


def log_normaliser(logits: Tensor, n: int) -> Tensor:
    """log sum_y p(y | x, w)^(1/n) for class logits [..., k]: what eq. (lik) drops as a constant, [...]."""
    return torch.logsumexp(torch.log_softmax(logits, -1) / n, -1)
