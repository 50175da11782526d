"""Gaussians: a multi-task model in which evidence, posterior and ELBO have closed forms, and eq. (sib) written out.

    w_t ~ p_psi(w) = N(m, S),    y_t = X_t w_t + noise,  noise ~ N(0, v I),    t = 1..N

Everything is computed in the precision and on the device of the caller's tensors; the checks of the theory use float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

Function = Callable[[Tensor], Tensor]
Noise = tuple[Tensor, Tensor]  # points eps [S, k, d] and weights [S] that stand for p(eps)
Reduction = Literal["mean", "sum"]  # the printed 1/n, or the plain sum of the paper's toy


def kl_gaussian(mean_q: Tensor | float, std_q: Tensor | float, mean_p: Tensor | float, std_p: Tensor | float) -> Tensor:
    """KL(N(mean_q, std_q²) ‖ N(mean_p, std_p²)), elementwise: sum over the last axis for diagonal Gaussians.

    Means may be numpy arrays too.
    """
    ratio = (std_q / std_p) ** 2
    # of a plain number in double precision: as float32, torch's default, it would spoil a float64 result
    log_ratio = ratio.log() if isinstance(ratio, Tensor) else math.log(ratio)
    return 0.5 * (ratio + ((mean_q - mean_p) / std_p) ** 2 - 1 - log_ratio)


@dataclass(frozen=True)
class LinearGaussianTasks:
    """N tasks of the conjugate model: X [N, n, k], y [N, n], prior N(m [k], S [k, k]), noise variance v.

    The 1/n of eq. (lik) raises the likelihood to the power 1/n, which for a Gaussian multiplies v by n: see `tempered`.
    """

    X: Tensor
    y: Tensor
    m: Tensor
    S: Tensor
    v: float

    @property
    def prior(self) -> MultivariateNormal:
        return MultivariateNormal(self.m, self.S)

    def tempered(self) -> LinearGaussianTasks:
        """The same tasks with every log-likelihood divided by n, up to the constant that eq. (lik) drops."""
        return replace(self, v=self.v * self.X.shape[-2])

    def posterior(self) -> MultivariateNormal:
        """p(w_t | d_t), a batch of N."""
        prior_precision = torch.linalg.inv(self.S)
        covariance = torch.linalg.inv(prior_precision + self.X.mT @ self.X / self.v)
        pull = prior_precision @ self.m + torch.einsum("tnk,tn->tk", self.X, self.y) / self.v
        return MultivariateNormal(torch.einsum("tij,tj->ti", covariance, pull), covariance)

    def log_evidence(self) -> Tensor:
        """log p(y_t | X_t) = log N(y_t; X_t m, X_t S X_tᵀ + v I), without the posterior's help: [N]."""
        noise = self.v * torch.eye(self.X.shape[-2]).to(self.X)
        return MultivariateNormal(self.X @ self.m, self.X @ self.S @ self.X.mT + noise).log_prob(self.y)

    def elbo(self, q: MultivariateNormal) -> Tensor:
        """Eq. (vae) per task, for a batch of N: E_q log p(d_t | w) - KL(q_t ‖ p_psi), [N]."""
        at_mean = Normal(torch.einsum("tnk,tk->tn", self.X, q.mean), math.sqrt(self.v)).log_prob(self.y).sum(-1)
        spread = torch.einsum("tij,tjk,tik->t", self.X, q.covariance_matrix, self.X)
        return at_mean - spread / (2 * self.v) - kl_divergence(q, self.prior)

    def log_joint(self, w: Tensor) -> Tensor:
        """log p(d_t | w) p_psi(w) at the points w [G, k]: [N, G]."""
        likelihood = Normal(torch.einsum("tnk,gk->tgn", self.X, w), math.sqrt(self.v))
        return likelihood.log_prob(self.y[:, None]).sum(-1) + self.prior.log_prob(w)


def random_linear_tasks(tasks: int, n: int, dim: int, v: float, generator: torch.Generator) -> LinearGaussianTasks:
    """Tasks drawn from the model itself, with a random prior of full covariance (float64)."""
    X, m = _normal((tasks, n, dim), generator), _normal((dim,), generator)
    S = random_covariances(1, dim, generator)[0]
    w = m + _normal((tasks, dim), generator) @ torch.linalg.cholesky(S).mT
    y = torch.einsum("tnk,tk->tn", X, w) + math.sqrt(v) * _normal((tasks, n), generator)
    return LinearGaussianTasks(X, y, m, S, v)


def random_covariances(batch: int, dim: int, generator: torch.Generator) -> Tensor:
    """Full, well conditioned covariance matrices [batch, dim, dim]."""
    A = _normal((batch, dim, dim), generator)
    return A @ A.mT / dim + 0.1 * torch.eye(dim).to(A)


def best_diagonal(q: MultivariateNormal) -> MultivariateNormal:
    """The diagonal Gaussian nearest to q in KL(. ‖ q): its variances are 1 / Λ_jj of q's precision matrix Λ."""
    return MultivariateNormal(q.mean, torch.diag_embed(1 / q.precision_matrix.diagonal(dim1=-2, dim2=-1)))


def kl_direction(
    theta: Tensor, psi: Tensor, features: Tensor, xi: Function, noise: Noise, reduction: Reduction
) -> Tensor:
    """The square bracket of eq. (sib) for a Gaussian q_theta and a linear predictor, term by term, without autograd.

        theta = (mean, log std) [2, k, d], and psi alike,   w(theta, eps) = mean + std * eps,   y_hat_i = w f(x_i)

    The features f(x) are [n, d], and xi maps y_hat [S, n, k] alike. The paper's E_eps is a weighted sum over given
    noises. With xi := the true dl/dy_hat the result is the gradient of KL(q_theta ‖ p(w | d)).
    """
    (mean, log_std), (prior_mean, prior_log_std), (eps, weights) = theta, psi, noise
    std, prior_variance = log_std.exp(), (2 * prior_log_std).exp()
    w = mean + std * eps  # w(theta, eps), [S, k, d]
    y_hat = torch.einsum("nd,skd->snk", features, w)
    dl_dw = torch.einsum("snk,nd->skd", xi(y_hat), features)  # sum_i xi(y_hat_i) dy_hat_i/dw
    if reduction == "mean":
        dl_dw = dl_dw / len(features)
    dw_dtheta = torch.stack([torch.ones_like(eps), std * eps])
    dkl_dtheta = torch.stack([(mean - prior_mean) / prior_variance, std**2 / prior_variance - 1])
    return torch.einsum("s,skd,pskd->pkd", weights, dl_dw, dw_dtheta) + dkl_dtheta


def negative_elbo(
    theta: Tensor, psi: Tensor, features: Tensor, loss: Function, noise: Noise, reduction: Reduction
) -> Tensor:
    """E_eps of the losses l(y_hat) [S, n], reduced over n, + KL(q_theta ‖ p_psi): the other way there, for autograd.

    It differs from KL(q_theta ‖ p(w | d)) by log p(d), in which theta has no part.
    """
    (mean, log_std), (eps, weights) = theta, noise
    losses = loss(torch.einsum("nd,skd->snk", features, mean + log_std.exp() * eps))
    expected = weights @ (losses.mean(-1) if reduction == "mean" else losses.sum(-1))
    return expected + kl_gaussian(mean, log_std.exp(), psi[0], psi[1].exp()).sum()


def gauss_hermite(dim: int, order: int) -> Noise:
    """Noise of one output row, eps [order^dim, 1, dim]: exact for polynomials in eps up to degree 2 order - 1."""
    points, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(order))
    eps, each = (torch.cartesian_prod(*[a] * dim).reshape(-1, dim) for a in (points, weights / weights.sum()))
    return eps[:, None], each.prod(-1)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
