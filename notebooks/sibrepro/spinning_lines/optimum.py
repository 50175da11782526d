"""The exact optimum of the spinning-lines objective: what training could reach at best, and under which reading.

Per task the objective (avi) is, with c the reading's likelihood weight, S = sum_i x_i^2 and p_psi = N(m, s^2),

    c S ((w - theta)^2 + sigma_w^2) / 2 + KL(N(theta, sigma_w^2) || N(m, s^2)).

theta may depend on x only. Given x, w has mean v(x) = mean(x) + mu_w and variance sigma_w^2, so the best are

    theta*(x) = (c S v(x) + m / s^2) / (c S + 1 / s^2),    m = E theta*,    s^2 = sigma_w^2 + Var theta*:

a compromise between the posterior mean v(x) and the prior mean m, in which the prior narrows as theta* varies less.
The expectations run over mean(x) ~ N(mu, sigma^2 / n) and, independent of it, sum_i (x_i - mean(x))^2 ~
sigma^2 chi^2_{n-1}, and are computed by Gaussian quadrature.

Where x tells much of w (sigma^2 / n well above sigma_w^2) the slope a of theta* against mean(x) solves
a^2 - a + 1 / (c sigma^4) = 0 (for c free of n): a posterior that follows its data exists only if c sigma^4 > 4.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from sibrepro.facts import Record
from sibrepro.spinning_lines.model import SpinningLines, likelihood_weights

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best psi = (mean, std), and what theta* then attains on average over tasks."""

    mean: float
    std: float
    slope: float  # of theta* against mean(x): 1 follows the posterior mean, 0 ignores x
    mse: float
    kl_posterior: float
    kl_prior: float
    information: float
    objective: float


CONDITIONS = {
    "n": np.unique(np.geomspace(2, 2048, 21).round().astype(int)),
    "sigma_w": np.geomspace(0.02, 2, 21),
    "sigma": np.geomspace(0.5, 5, 31),
}


def experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, Array]]:
    """One run: each reading's optimum, also with a linear xi and K steps; and the summed reading's over `CONDITIONS`.

    metrics "<reading>/<field of Optimum>" and "<reading>/linear/<field>"; arrays "<parameter>" and
    "<parameter>/<field>", with the true mutual information as "<parameter>/true_information".
    """
    metrics: dict[str, float] = {}
    for reading, weight in likelihood_weights(p).items():
        for name, solved in ((reading, solve(p, weight)), (f"{reading}/linear", solve_linear_xi(p, weight, p.K))):
            metrics |= {f"{name}/{field}": value for field, value in dataclasses.asdict(solved).items()}
    arrays: dict[str, Array] = {}
    for name, values in CONDITIONS.items():
        worlds = [dataclasses.replace(p, **{name: value.item()}) for value in values]
        solved = [solve(world, 1.0) for world in worlds]
        arrays[name] = values.astype(np.float64)
        arrays[f"{name}/true_information"] = np.array([world.information for world in worlds])
        for field in ("kl_posterior", "kl_prior"):
            arrays[f"{name}/{field}"] = np.array([getattr(s, field) for s in solved])
    return metrics, arrays


def read(record: Record, name: str) -> Optimum:
    """The optimum kept in a run's metrics under `name`: a reading, or "<reading>/linear"."""
    return Optimum(**{field.name: record.metrics[f"{name}/{field.name}"] for field in dataclasses.fields(Optimum)})


def best_theta(p: SpinningLines, weight: float, mean: float, std: float, v: Array, S: Array) -> Array:
    """theta*(x) for posterior means v and sums of squares S of any shape."""
    return (weight * S * v + mean / std**2) / (weight * S + 1 / std**2)


def solve(p: SpinningLines, weight: float, tolerance: float = 1e-13) -> Optimum:
    """Iterate the closed forms above from a wide prior and from a narrow one; keep the better end point."""
    v, S, probability = _quadrature(p)
    ends = []
    for std in (1.0 + p.prior[1], p.sigma_w):
        for _ in range(100_000):
            mean = _best_mean(weight, std, v, S, probability)
            theta = best_theta(p, weight, mean, std, v, S)
            before, std = std, math.sqrt(p.sigma_w**2 + float(probability @ (theta - mean) ** 2))
            if abs(std - before) < tolerance:
                break
        mean = _best_mean(weight, std, v, S, probability)
        ends.append(_describe(p, weight, mean, std, best_theta(p, weight, mean, std, v, S), v, S, probability))
    return min(ends, key=lambda end: end.objective)


def _best_mean(weight: float, std: float, v: Array, S: Array, probability: Array) -> float:
    """m = E theta* for a given s: theta* is linear in m, so the equation is solved rather than iterated."""
    pull = weight * S / (weight * S + 1 / std**2)  # theta* = pull v + (1 - pull) m
    return float(probability @ (pull * v) / (probability @ pull))


def objective_on(p: SpinningLines, weight: float, best: Optimum, v: Array, S: Array, w: Array) -> float:
    """The mean objective of theta* on given tasks (posterior means v, sums of squares S, slopes w), to compare with."""
    theta = best_theta(p, weight, best.mean, best.std, v, S)
    kl = _kl_to_psi(p, theta, best.mean, best.std)
    return float(np.mean(0.5 * weight * S * ((w - theta) ** 2 + p.sigma_w**2) + kl))


def solve_linear_xi(p: SpinningLines, weight: float, K: int) -> Optimum:
    """The best that K steps of eq. (toy) can do with a linear xi(y) = a y + b, theta^0 = lambda and any psi.

    Such a step is theta <- theta - eta (a S theta + b n mean(x)): all it takes to move towards the posterior mean.
    It tells what K steps can do before any training; a richer xi can only do better.
    """
    v, S, probability = (torch.from_numpy(array) for array in _quadrature(p))
    xbar = v - p.mu_w
    start = [p.prior[0], 1.0, -1.0 / max(K, 1), p.prior[0], math.log(p.prior[1])]
    z = torch.tensor(start, dtype=torch.float64, requires_grad=True)  # lambda, a, b (both times eta n), m, log s

    def theta() -> torch.Tensor:
        value = z[0].expand_as(v)
        for _ in range(K):
            value = value - (z[1] * S / p.n * value + z[2] * xbar)
        return value

    def objective() -> torch.Tensor:
        now, var = theta(), (2 * z[4]).exp()
        fit = 0.5 * weight * S * ((v - now) ** 2 + 2 * p.sigma_w**2)
        kl = 0.5 * ((now - z[3]) ** 2 + p.sigma_w**2) / var + z[4] - math.log(p.sigma_w) - 0.5
        return probability @ (fit + kl)

    optimizer = torch.optim.LBFGS(
        [z], max_iter=500, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = objective()
        loss.backward()
        return loss

    optimizer.step(closure)
    best = theta().detach().numpy()
    mean, log_std = z.detach()[3:].tolist()
    return _describe(p, weight, mean, math.exp(log_std), best, v.numpy(), S.numpy(), probability.numpy())


def _describe(
    p: SpinningLines, weight: float, mean: float, std: float, theta: Array, v: Array, S: Array, probability: Array
) -> Optimum:
    def expect(values: Array) -> float:
        return float(probability @ values)

    xbar = v - p.mu_w
    squared_error = (v - theta) ** 2 + p.sigma_w**2  # E (w - theta)^2 given x
    kl_to_psi = _kl_to_psi(p, theta, mean, std)
    prior_mean, prior_std = p.prior
    kl_prior = (std**2 + (mean - prior_mean) ** 2) / (2 * prior_std**2) + math.log(prior_std / std) - 0.5
    return Optimum(
        mean=mean,
        std=std,
        slope=expect((theta - expect(theta)) * (xbar - p.mu)) / (p.sigma**2 / p.n),
        mse=expect(S / p.n * squared_error),
        kl_posterior=expect((theta - v) ** 2) / (2 * p.sigma_w**2),
        kl_prior=kl_prior,
        information=expect(kl_to_psi),
        objective=expect(0.5 * weight * S * (squared_error + p.sigma_w**2) + kl_to_psi),
    )


def _kl_to_psi(p: SpinningLines, theta: Array, mean: float, std: float) -> Array:
    """KL(N(theta, sigma_w^2) || N(mean, std^2))."""
    return (p.sigma_w**2 + (theta - mean) ** 2) / (2 * std**2) + math.log(std / p.sigma_w) - 0.5


def _quadrature(p: SpinningLines, nodes: int = 48) -> tuple[Array, Array, Array]:
    """Posterior means v, sums of squares S and their probabilities, flat arrays of nodes^2 points."""
    z, weights_z = np.polynomial.hermite_e.hermegauss(nodes)
    chi2, weights_chi2 = _chi_squared(p.n - 1, nodes)
    xbar = p.mu + p.sigma / math.sqrt(p.n) * z
    xbar, spread = (grid.ravel() for grid in np.meshgrid(xbar, p.sigma**2 * chi2, indexing="ij"))
    probability = np.outer(weights_z / weights_z.sum(), weights_chi2).ravel()
    return xbar + p.mu_w, spread + p.n * xbar**2, probability


def _chi_squared(degrees: int, nodes: int) -> tuple[Array, Array]:
    """Gauss-Laguerre quadrature of a chi-squared variable, by Golub and Welsch (no Gamma function to overflow)."""
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    alpha, k = degrees / 2 - 1, np.arange(nodes)
    points, vectors = eigh_tridiagonal(2 * k + alpha + 1, np.sqrt(k[1:] * (k[1:] + alpha)))
    return 2 * points, vectors[0] ** 2
