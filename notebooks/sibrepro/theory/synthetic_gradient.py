"""Eq. (sib) written out for a Gaussian q_theta and a linear predictor, term by term, without autograd.

    theta = (mean, log std),   w(theta, eps) = mean + std * eps,   y_hat_i = w f(x_i)

The paper's E_eps is a weighted sum over given noises: equal weights for Monte Carlo, Gauss-Hermite weights where the
integral has to be exact. With xi := the true dl/dy_hat the result is the gradient of KL(q_theta ‖ p(w | d)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sibrepro.theory.bayes import kl_gaussian

Reduction = Literal["mean", "sum"]


class Gaussian(NamedTuple):
    """A diagonal Gaussian over the weights w [k, d]; as theta of q or as psi of the prior."""

    mean: Tensor
    log_std: Tensor


class Noise(NamedTuple):
    """Points eps [S, k, d] and weights [S] that stand for p(eps)."""

    eps: Tensor
    weights: Tensor


def kl_direction(
    theta: Gaussian, psi: Gaussian, features: Tensor, xi: Callable[[Tensor], Tensor], noise: Noise, reduction: Reduction
) -> Gaussian:
    """The square bracket of eq. (sib), of the shape of theta; features f(x) are [n, d], xi maps y_hat [S, n, k] alike.

    `reduction`: "mean" is the printed 1/n, "sum" the plain sum of the paper's toy.
    """
    std = theta.log_std.exp()
    w = theta.mean + std * noise.eps  # w(theta, eps), [S, k, d]
    y_hat = torch.einsum("nd,skd->snk", features, w)
    dl_dw = torch.einsum("snk,nd->skd", xi(y_hat), features)  # sum_i xi(y_hat_i) dy_hat_i/dw
    if reduction == "mean":
        dl_dw = dl_dw / len(features)
    dw_dmean, dw_dlog_std = 1.0, std * noise.eps
    prior_variance = (2 * psi.log_std).exp()
    return Gaussian(
        mean=_expect(dl_dw * dw_dmean, noise) + (theta.mean - psi.mean) / prior_variance,
        log_std=_expect(dl_dw * dw_dlog_std, noise) + std**2 / prior_variance - 1,
    )


def negative_elbo(
    theta: Gaussian,
    psi: Gaussian,
    features: Tensor,
    loss: Callable[[Tensor], Tensor],
    noise: Noise,
    reduction: Reduction,
) -> Tensor:
    """E_eps of the losses l(y_hat) [S, n], reduced over n, + KL(q_theta ‖ p_psi): the other way there, for autograd.

    It differs from KL(q_theta ‖ p(w | d)) by log p(d), in which theta has no part.
    """
    y_hat = torch.einsum("nd,skd->snk", features, theta.mean + theta.log_std.exp() * noise.eps)
    losses = loss(y_hat)
    expected = _expect(losses.mean(-1) if reduction == "mean" else losses.sum(-1), noise)
    return expected + kl_gaussian(theta.mean, theta.log_std.exp(), psi.mean, psi.log_std.exp()).sum()


def gauss_hermite(dim: int, order: int, dtype: torch.dtype = torch.float64) -> Noise:
    """Noise of one output row, eps [order^dim, 1, dim]: exact for polynomials in eps up to degree 2 order - 1."""
    points, weights = (torch.from_numpy(a).to(dtype) for a in np.polynomial.hermite_e.hermegauss(order))
    weights = weights / weights.sum()
    grids = torch.meshgrid(*[torch.arange(order)] * dim, indexing="ij")
    index = torch.stack(grids, -1).reshape(-1, dim)
    return Noise(points[index][:, None, :], weights[index].prod(-1))


def monte_carlo(samples: int, shape: tuple[int, int], generator: torch.Generator) -> Noise:
    """Equally weighted standard normal noise, eps [samples, *shape]."""
    eps = torch.randn((samples, *shape), generator=generator, dtype=torch.float64, device=generator.device)
    return Noise(eps, torch.full((samples,), 1 / samples, dtype=eps.dtype, device=eps.device))


def _expect(values: Tensor, noise: Noise) -> Tensor:
    return torch.einsum("s,s...->...", noise.weights, values)
