"""A multi-task Gaussian model whose evidence, posteriors and ELBO have closed forms, and eq. (sib) written out.

    w_t ~ p_psi(w) = N(m, S),    y_t = X_t w_t + noise,  noise ~ N(0, v I),    t = 1..N

Everything is computed in the precision and on the device of the caller's tensors. The checks of the theory use float64.

Shapes: N tasks, n examples, k dimensions of w. In `kl_direction` and `negative_elbo`: S samples of the noise, n
examples, k outputs, d features.
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
Noise = tuple[Tensor, Tensor]  # points eps [S, k, d] and weights [S] that represent p(eps)
Reduction = Literal["mean", "sum"]  # the 1/n printed in eq. (lik), or the plain sum of the paper's toy experiment


def kl_gaussian(mean_q: Tensor | float, std_q: Tensor | float, mean_p: Tensor | float, std_p: Tensor | float) -> Tensor:
    """Return KL(N(mean_q, std_q²) ‖ N(mean_p, std_p²)) of scalar Gaussians, elementwise.

    For diagonal Gaussians, sum the result over the last axis. Means may be numpy arrays, too.
    """
    ratio = (std_q / std_p) ** 2
    # The logarithm of a plain number is taken in double precision. torch's default, float32, would spoil the result.
    log_ratio = ratio.log() if isinstance(ratio, Tensor) else math.log(ratio)
    return 0.5 * (ratio + ((mean_q - mean_p) / std_p) ** 2 - 1 - log_ratio)


@dataclass(frozen=True)
class LinearGaussianTasks:
    """N tasks of the model above, together with its parameters.

    Attributes:
        X: inputs, `[N, n, k]`.
        y: outputs, `[N, n]`.
        m: mean of the prior, `[k]`.
        S: covariance of the prior, `[k, k]`.
        v: variance of the noise.
    """

    X: Tensor
    y: Tensor
    m: Tensor
    S: Tensor
    v: float

    @property
    def prior(self) -> MultivariateNormal:
        """Return p_psi(w)."""
        return MultivariateNormal(self.m, self.S)

    def tempered(self) -> LinearGaussianTasks:
        """Return the tasks under the 1/n of eq. (lik), up to the constant that the equation drops.

        Dividing the log-likelihood by n raises the likelihood to the power 1/n. For a Gaussian this multiplies v by n.
        """
        return replace(self, v=self.v * self.X.shape[-2])

    def posterior(self) -> MultivariateNormal:
        """Return the posteriors p(w_t | d_t), a batch of N."""
        prior_precision = torch.linalg.inv(self.S)
        covariance = torch.linalg.inv(prior_precision + self.X.mT @ self.X / self.v)
        pull = prior_precision @ self.m + torch.einsum("tnk,tn->tk", self.X, self.y) / self.v
        return MultivariateNormal(torch.einsum("tij,tj->ti", covariance, pull), covariance)

    def log_evidence(self) -> Tensor:
        """Return log p(y_t | X_t) = log N(y_t; X_t m, X_t S X_tᵀ + v I), `[N]`. It does not use the posterior."""
        noise = self.v * torch.eye(self.X.shape[-2]).to(self.X)
        return MultivariateNormal(self.X @ self.m, self.X @ self.S @ self.X.mT + noise).log_prob(self.y)

    def elbo(self, q: MultivariateNormal) -> Tensor:
        """Return eq. (vae) of each task, E_q log p(d_t | w) - KL(q_t ‖ p_psi), `[N]`, for a batch of N Gaussians."""
        at_mean = Normal(torch.einsum("tnk,tk->tn", self.X, q.mean), math.sqrt(self.v)).log_prob(self.y).sum(-1)
        spread = torch.einsum("tij,tjk,tik->t", self.X, q.covariance_matrix, self.X)
        return at_mean - spread / (2 * self.v) - kl_divergence(q, self.prior)

    def log_joint(self, w: Tensor) -> Tensor:
        """Return log p(d_t | w) p_psi(w) of each task at G points w `[G, k]`, `[N, G]`."""
        likelihood = Normal(torch.einsum("tnk,gk->tgn", self.X, w), math.sqrt(self.v))
        return likelihood.log_prob(self.y[:, None]).sum(-1) + self.prior.log_prob(w)


def random_linear_tasks(tasks: int, n: int, dim: int, v: float, generator: torch.Generator) -> LinearGaussianTasks:
    """Draw tasks from the model itself, in float64, with a random prior of full covariance.

    Args:
        tasks: number of tasks, N.
        n: number of examples of a task.
        dim: dimension of w, k.
        v: variance of the noise.
        generator: source of the random numbers.
    """
    X, m = _normal((tasks, n, dim), generator), _normal((dim,), generator)
    S = random_covariances(1, dim, generator)[0]
    w = m + _normal((tasks, dim), generator) @ torch.linalg.cholesky(S).mT
    y = torch.einsum("tnk,tk->tn", X, w) + math.sqrt(v) * _normal((tasks, n), generator)
    return LinearGaussianTasks(X, y, m, S, v)


def random_covariances(batch: int, dim: int, generator: torch.Generator) -> Tensor:
    """Draw full, well conditioned covariance matrices `[batch, dim, dim]`."""
    A = _normal((batch, dim, dim), generator)
    return A @ A.mT / dim + 0.1 * torch.eye(dim).to(A)


def best_diagonal(q: MultivariateNormal) -> MultivariateNormal:
    """Return the diagonal Gaussian p with the least KL(p ‖ q). Its variances are 1 / Λ_jj of q's precision matrix Λ."""
    variances = 1 / q.precision_matrix.diagonal(dim1=-2, dim2=-1)
    return MultivariateNormal(q.mean, torch.diag_embed(variances))


def kl_direction(
    theta: Tensor, psi: Tensor, features: Tensor, xi: Function, noise: Noise, reduction: Reduction
) -> Tensor:
    """Return the square bracket of eq. (sib) for a Gaussian q_theta and a linear predictor, without autograd.

        w(theta, eps) = mean + std * eps,    y_hat_i = w f(x_i)

    If xi is the true gradient dl/dy_hat, the result is the gradient of KL(q_theta ‖ p(w | d)).

    Args:
        theta: mean and log std of q_theta, `[2, k, d]`.
        psi: mean and log std of the prior p_psi, `[2, k, d]`.
        features: f(x), `[n, d]`.
        xi: the synthetic gradient, which maps predictions y_hat `[S, n, k]` to the same shape.
        noise: samples or quadrature points of eps with their weights, for the expectation over eps.
        reduction: whether eq. (lik) takes the mean or the sum over the n examples.

    Returns:
        The direction of descent in theta, `[2, k, d]`.
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
    """Return E_eps of the loss + KL(q_theta ‖ p_psi), whose gradient by autograd checks `kl_direction`.

    It differs from KL(q_theta ‖ p(w | d)) by log p(d), which does not depend on theta.

    Args:
        theta, psi, features, noise, reduction: as for `kl_direction`.
        loss: maps predictions y_hat `[S, n, k]` to losses `[S, n]`.
    """
    (mean, log_std), (eps, weights) = theta, noise
    losses = loss(torch.einsum("nd,skd->snk", features, mean + log_std.exp() * eps))
    expected = weights @ (losses.mean(-1) if reduction == "mean" else losses.sum(-1))
    return expected + kl_gaussian(mean, log_std.exp(), psi[0], psi[1].exp()).sum()


def gauss_hermite(dim: int, order: int) -> Noise:
    """Return quadrature points of a standard normal in `dim` dimensions, as noise of a single output.

    Args:
        dim: number of dimensions, d.
        order: number of points in each dimension. Polynomials up to degree 2 order - 1 are integrated exactly.

    Returns:
        Points eps, `[order^dim, 1, dim]`, and their weights, `[order^dim]`.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    eps, factors = _grid(points, dim), _grid(weights / weights.sum(), dim)
    return eps[:, None], factors.prod(-1)


def _grid(values: np.ndarray, dim: int) -> Tensor:
    """Return all combinations of `dim` of these values, `[len(values)^dim, dim]`."""
    return torch.cartesian_prod(*[torch.from_numpy(values)] * dim).reshape(-1, dim)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers in float64."""
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
