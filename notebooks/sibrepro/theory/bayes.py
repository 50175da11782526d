"""KL divergences, and the conjugate Gaussian multi-task model in which evidence, posterior and ELBO have closed forms.

    w_t ~ p_psi(w) = N(m, S),    y_t = X_t w_t + noise,  noise ~ N(0, v I),    t = 1..N

Everything is computed in the precision and on the device of the caller's tensors; the checks of the theory use float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def kl_gaussian(mean_q: Tensor | float, std_q: Tensor | float, mean_p: Tensor | float, std_p: Tensor | float) -> Tensor:
    """KL(N(mean_q, std_q²) ‖ N(mean_p, std_p²)), elementwise: sum over the last axis for diagonal Gaussians."""
    # plain numbers in double precision: as float32, torch's default, they would spoil a float64 result
    given = (mean_q, std_q, mean_p, std_p)
    mean_q, std_q, mean_p, std_p = (v if isinstance(v, Tensor) else torch.tensor(v, dtype=torch.float64) for v in given)
    ratio = (std_q / std_p) ** 2
    return 0.5 * (ratio + ((mean_q - mean_p) / std_p) ** 2 - 1 - torch.log(ratio))


def kl_full_gaussian(mean_q: Tensor, cov_q: Tensor, mean_p: Tensor, cov_p: Tensor) -> Tensor:
    """KL(N(mean_q, cov_q) ‖ N(mean_p, cov_p)) of means [..., k] and full covariances [..., k, k]: [...]."""
    precision_p = torch.linalg.inv(cov_p)
    shift = mean_q - mean_p
    return 0.5 * (
        (precision_p * cov_q).sum((-2, -1))  # trace of a product of symmetric matrices
        + torch.einsum("...i,...ij,...j->...", shift, precision_p, shift)
        - mean_q.shape[-1]
        + torch.logdet(cov_p)
        - torch.logdet(cov_q)
    )


def kl_discrete(q: Tensor, p: Tensor) -> Tensor:
    """KL(q ‖ p) of tables over the last axis, with 0 log 0 = 0: [..., m] -> [...]."""
    return (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)


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

    def tempered(self) -> LinearGaussianTasks:
        """The same tasks with every log-likelihood divided by n, up to the constant that eq. (lik) drops."""
        return LinearGaussianTasks(self.X, self.y, self.m, self.S, self.v * self.X.shape[-2])

    def posterior(self) -> tuple[Tensor, Tensor]:
        """p(w_t | d_t): mean [N, k] and covariance [N, k, k]."""
        prior_precision = torch.linalg.inv(self.S)
        covariance = torch.linalg.inv(prior_precision + self.X.mT @ self.X / self.v)
        pull = prior_precision @ self.m + (self.X.mT @ self.y[..., None])[..., 0] / self.v
        return (covariance @ pull[..., None])[..., 0], covariance

    def log_evidence(self) -> Tensor:
        """log p(y_t | X_t) = log N(y_t; X_t m, X_t S X_tᵀ + v I), without the posterior's help: [N]."""
        n = self.X.shape[-2]
        covariance = self.X @ self.S @ self.X.mT + self.v * torch.eye(n, dtype=self.X.dtype, device=self.X.device)
        residual = self.y - self.X @ self.m
        fit = torch.einsum("ti,ti->t", residual, torch.linalg.solve(covariance, residual))
        return -0.5 * (fit + torch.logdet(covariance) + n * LOG_2PI)

    def elbo(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Eq. (vae) per task, for q_t = N(mean [N, k], covariance [N, k, k]): E_q log p(d_t | w) - KL(q_t ‖ p_psi)."""
        residual = self.y - (self.X @ mean[..., None])[..., 0]
        spread = torch.einsum("tij,tjk,tik->t", self.X, covariance, self.X)
        n = self.X.shape[-2]
        expected = -0.5 * (((residual**2).sum(-1) + spread) / self.v + n * (LOG_2PI + math.log(self.v)))
        return expected - kl_full_gaussian(mean, covariance, self.m, self.S)

    def log_joint(self, w: Tensor) -> Tensor:
        """log p(d_t | w) p_psi(w) at the points w [G, k]: [N, G]."""
        residual = self.y[:, None, :] - torch.einsum("tnk,gk->tgn", self.X, w)
        likelihood = -0.5 * ((residual**2).sum(-1) / self.v + self.y.shape[-1] * (LOG_2PI + math.log(self.v)))
        prior = torch.distributions.MultivariateNormal(self.m, self.S)
        return likelihood + prior.log_prob(w)


def random_linear_tasks(tasks: int, n: int, dim: int, v: float, generator: torch.Generator) -> LinearGaussianTasks:
    """Tasks drawn from the model itself, with a random prior of full covariance (float64)."""
    X, m = _normal((tasks, n, dim), generator), _normal((dim,), generator)
    S = random_covariances(1, dim, generator)[0]
    w = m + _normal((tasks, dim), generator) @ torch.linalg.cholesky(S).mT
    y = (X @ w[..., None])[..., 0] + math.sqrt(v) * _normal((tasks, n), generator)
    return LinearGaussianTasks(X, y, m, S, v)


def random_covariances(batch: int, dim: int, generator: torch.Generator) -> Tensor:
    """Full, well conditioned covariance matrices [batch, dim, dim]."""
    A = _normal((batch, dim, dim), generator)
    return A @ A.mT / dim + 0.1 * torch.eye(dim, dtype=A.dtype, device=A.device)


def random_mixture(components: int, generator: torch.Generator) -> torch.distributions.Distribution:
    """A Gaussian mixture on the line: a q outside every conjugate family, of which only the density is used."""
    weights = torch.softmax(_normal((components,), generator), -1)
    means, stds = 1.5 * _normal((components,), generator), 0.3 + _normal((components,), generator).abs()
    parts = torch.distributions.Normal(means, stds)
    return torch.distributions.MixtureSameFamily(torch.distributions.Categorical(weights), parts)


def integrate(values: Tensor, grid: Tensor) -> Tensor:
    """∫ of values [..., G] on an even grid [G]; for smooth values that vanish at both ends nearly exact: [...]."""
    return values.sum(-1) * (grid[1] - grid[0])


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
