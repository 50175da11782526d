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
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import fixed_point, minimize

from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights, measures

Array = NDArray[np.float64]
Points = tuple[Array, Array, Array]
Optimum = dict[str, float]  # psi = (mean, std), and what theta then attains on average over tasks: see `describe`

CONDITIONS = {
    "n": np.unique(np.geomspace(2, 2048, 21).round().astype(int)),
    "sigma_w": np.geomspace(0.02, 2, 21),
    "sigma": np.geomspace(0.5, 5, 31),
}


def experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, Array]]:
    """One run: each reading's optimum, also with a linear xi and K steps; and the summed reading's over `CONDITIONS`.

    metrics "<reading>/<name in Optimum>" and "<reading>/linear/<name>"; arrays "<parameter>" and "<parameter>/<name>",
    with the true mutual information as "<parameter>/true_information".
    """
    metrics: dict[str, float] = {}
    for reading, weight in likelihood_weights(p).items():
        for name, solved in ((reading, solve(p, weight)), (f"{reading}/linear", solve_linear_xi(p, weight, p.K))):
            metrics |= {f"{name}/{what}": value for what, value in solved.items()}
    arrays: dict[str, Array] = {}
    for name, values in CONDITIONS.items():
        worlds = [dataclasses.replace(p, **{name: value.item()}) for value in values]
        solved = [solve(world, 1.0) for world in worlds]
        arrays[name] = values.astype(np.float64)
        arrays[f"{name}/true_information"] = np.array([world.information for world in worlds])
        arrays |= {f"{name}/{what}": np.array([s[what] for s in solved]) for what in ("kl_posterior", "kl_prior")}
    return metrics, arrays


def best_theta(weight: float, mean: float, std: float, v: Array, S: Array) -> Array:
    """theta*(x) for posterior means v and sums of squares S of any shape."""
    return (weight * S * v + mean / std**2) / (weight * S + 1 / std**2)


def solve(p: SpinningLines, weight: float) -> Optimum:
    """Iterate the closed forms above from a wide prior and from a narrow one; keep the better end point."""
    v, S, probability = points = quadrature(p)

    def best_mean(std: float) -> float:
        """m = E theta* for a given s: theta* is linear in m, so the equation is solved rather than iterated."""
        pull = weight * S / (weight * S + 1 / std**2)  # theta* = pull v + (1 - pull) m
        return float(probability @ (pull * v) / (probability @ pull))

    def next_std(std: float) -> float:
        mean = best_mean(std)
        theta = best_theta(weight, mean, std, v, S)
        return math.sqrt(p.sigma_w**2 + probability @ (theta - mean) ** 2)

    ends = []
    for start in (1.0 + p.prior[1], p.sigma_w):
        std = float(fixed_point(next_std, start, xtol=1e-13, maxiter=100_000, method="iteration"))
        mean = best_mean(std)
        ends.append(describe(p, weight, mean, std, best_theta(weight, mean, std, v, S), points))
    return min(ends, key=lambda end: end["objective"])


def solve_linear_xi(p: SpinningLines, weight: float, K: int) -> Optimum:
    """The best that K steps of eq. (toy) can do with a linear xi(y) = a y + b, theta^0 = lambda and any psi.

    Such a step is theta <- theta - eta (a S theta + b n mean(x)): all it takes to move towards the posterior mean.
    It tells what K steps can do before any training; a richer xi can only do better.
    """
    v, S, probability = points = quadrature(p)

    def reached(z: Array) -> Optimum:
        theta, (a, b) = np.full_like(v, z[0]), z[1:]  # lambda; a and b times eta n
        for _ in range(K):
            theta = theta - (a * S / p.n * theta + b * (v - p.mu_w))
        mean = float(probability @ theta)
        std = math.sqrt(p.sigma_w**2 + probability @ (theta - mean) ** 2)
        return describe(p, weight, mean, std, theta, points)

    start = [p.prior[0], 1.0, -1.0 / max(K, 1)]
    return reached(minimize(lambda z: reached(z)["objective"], start, method="BFGS", options={"gtol": 1e-9}).x)


def objective_on(p: SpinningLines, weight: float, psi: tuple[float, float], v: Array, S: Array, w: Array) -> float:
    """The mean objective of theta* on given tasks (posterior means v, sums of squares S, slopes w), to compare with."""
    theta = best_theta(weight, *psi, v, S)
    return float(measures(p, weight, theta, psi, v, S, (w - theta) ** 2)["objective"].mean())


def describe(p: SpinningLines, weight: float, mean: float, std: float, theta: Array, points: Points) -> Optimum:
    """What theta, at the points of the quadrature, attains on average over tasks beside psi = (mean, std).

    "slope" is that of theta against mean(x): 1 follows the posterior mean, 0 ignores x.
    """
    v, S, probability = points
    squared_error = (v - theta) ** 2 + p.sigma_w**2  # E (w - theta)^2 given x
    each = measures(p, weight, theta, (mean, std), v, S, squared_error)
    each["slope"] = (theta - probability @ theta) * (v - p.mu_w - p.mu) / (p.sigma**2 / p.n)
    found = {name: float(probability @ np.broadcast_to(values, v.shape)) for name, values in each.items()}
    return {"mean": mean, "std": std, **found}


def quadrature(p: SpinningLines, nodes: int = 48) -> Points:
    """Posterior means v, sums of squares S and their probabilities, flat arrays of nodes^2 points."""
    z, weights_z = np.polynomial.hermite_e.hermegauss(nodes)
    chi2, weights_chi2 = chi_squared(p.n - 1, nodes)
    xbar = p.mu + p.sigma / math.sqrt(p.n) * z
    xbar, spread = (grid.ravel() for grid in np.meshgrid(xbar, p.sigma**2 * chi2, indexing="ij"))
    probability = np.outer(weights_z / weights_z.sum(), weights_chi2).ravel()
    return xbar + p.mu_w, spread + p.n * xbar**2, probability


def chi_squared(degrees: int, nodes: int) -> tuple[Array, Array]:
    """Gauss-Laguerre quadrature of a chi-squared variable, by Golub and Welsch (no Gamma function to overflow)."""
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    alpha, k = degrees / 2 - 1, np.arange(nodes)
    points, vectors = eigh_tridiagonal(2 * k + alpha + 1, np.sqrt(k[1:] * (k[1:] + alpha)))
    return 2 * points, vectors[0] ** 2
