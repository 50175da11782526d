"""The exact optimum of the spinning-lines objective: the best that any training could reach, for each reading.

A reading is one way to read the paper's likelihood; it multiplies the squared error with a weight c, see
`model.likelihood_weights`. With S = sum_i x_i^2 and p_psi = N(m, s^2), the objective (avi) of a task is

    c S ((w - theta)^2 + sigma_w^2) / 2 + KL(N(theta, sigma_w^2) || N(m, s^2)).

theta may depend on x only. Given x, w has mean v(x) = mean(x) + mu_w and variance sigma_w^2. The objective is least at

    theta*(x) = (c S v(x) + m / s^2) / (c S + 1 / s^2),    m = E theta*,    s^2 = sigma_w^2 + Var theta*:

This is a compromise between the posterior mean v(x) and the prior mean m, and the prior narrows as theta* varies less.
The expectations run over mean(x) ~ N(mu, sigma^2 / n) and, independent of it, sum_i (x_i - mean(x))^2 ~
sigma^2 chi^2_{n-1}. They are computed by Gaussian quadrature.

If x tells much about w (sigma^2 / n well above sigma_w^2), the slope a of theta* against mean(x) solves
a^2 - a + 1 / (c sigma^4) = 0, for c that does not depend on n. A posterior that follows its data therefore exists only
if c sigma^4 > 4.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import fixed_point, minimize

from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights, measures

Array = NDArray[np.float64]
Points = tuple[Array, Array, Array]  # posterior means, sums of squares and probabilities: see `quadrature`
Optimum = dict[str, float]  # psi = (mean, std), and what theta then attains on average over tasks: see `describe`

# The values of each parameter for which the optimum is computed, the others as in the run.
CONDITIONS = {
    "n": np.unique(np.geomspace(2, 2048, 21).round().astype(int)),
    "sigma_w": np.geomspace(0.02, 2, 21),
    "sigma": np.geomspace(0.5, 5, 31),
}


def experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, Array]]:
    """Compute one run: the optimum of each reading, and how that of the summed reading changes with the problem.

    Returns:
        metrics: "<reading>/<name>", the optimum, and "<reading>/linear/<name>", the best with a linear xi and K steps,
            for each name in `Optimum`.
        arrays: for each parameter in `CONDITIONS` its values "<parameter>", and at these values the optimum's
            "<parameter>/kl_posterior" and "<parameter>/kl_prior", and "<parameter>/true_information", I(w; x).
    """
    metrics: dict[str, float] = {}
    for reading, weight in likelihood_weights(p).items():
        best, linear = solve(p, weight), solve_linear_xi(p, weight, p.K)
        metrics |= {f"{reading}/{name}": value for name, value in best.items()}
        metrics |= {f"{reading}/linear/{name}": value for name, value in linear.items()}
    arrays: dict[str, Array] = {}
    for parameter, values in CONDITIONS.items():
        worlds = [dataclasses.replace(p, **{parameter: value.item()}) for value in values]
        optima = pd.DataFrame([solve(world, 1.0) for world in worlds])
        arrays[parameter] = values.astype(np.float64)
        arrays[f"{parameter}/true_information"] = np.array([world.information for world in worlds])
        for name in ("kl_posterior", "kl_prior"):
            arrays[f"{parameter}/{name}"] = optima[name].to_numpy()
    return metrics, arrays


def best_theta(weight: float, mean: float, std: float, v: Array, S: Array) -> Array:
    """Return theta*(x) for posterior means v and sums of squares S of any shape, and p_psi = N(mean, std^2)."""
    return (weight * S * v + mean / std**2) / (weight * S + 1 / std**2)


def solve(p: SpinningLines, weight: float) -> Optimum:
    """Return the optimum for the likelihood weight c of a reading.

    The closed forms of this module are iterated from a wide prior and from a narrow one, because the iteration may stop
    at a local optimum. The better of the two ends is returned.
    """
    v, S, probability = points = quadrature(p)

    def given_std(std: float) -> tuple[float, Array]:
        """Return m = E theta* and theta* for a given s: theta* is linear in m, so no iteration is needed for m."""
        pull = weight * S / (weight * S + 1 / std**2)  # theta* = pull v + (1 - pull) m
        mean = float(probability @ (pull * v) / (probability @ pull))
        return mean, best_theta(weight, mean, std, v, S)

    def next_std(std: float) -> float:
        mean, theta = given_std(std)
        return math.sqrt(p.sigma_w**2 + probability @ (theta - mean) ** 2)

    ends = []
    for start in (1.0 + p.prior[1], p.sigma_w):
        std = float(fixed_point(next_std, start, xtol=1e-13, maxiter=100_000, method="iteration"))
        mean, theta = given_std(std)
        ends.append(describe(p, weight, mean, std, theta, points))
    return min(ends, key=lambda end: end["objective"])


def solve_linear_xi(p: SpinningLines, weight: float, K: int) -> Optimum:
    """Return the best that K steps of eq. (toy) can do with a linear xi(y) = a y + b, theta^0 = lambda and any psi.

    Such a step is theta <- theta - eta (a S theta + b n mean(x)), which suffices to move towards the posterior mean.
    The result bounds what K steps with a trained xi should reach: a richer xi can only do better.
    """
    v, S, probability = points = quadrature(p)

    def reached(z: Array) -> Optimum:
        """Return what lambda, eta n a and eta n b attain."""
        start, a, b = z
        theta = np.full_like(v, start)
        for _ in range(K):
            theta = theta - (a * S / p.n * theta + b * (v - p.mu_w))
        mean = float(probability @ theta)
        std = math.sqrt(p.sigma_w**2 + probability @ (theta - mean) ** 2)
        return describe(p, weight, mean, std, theta, points)

    guess = [p.prior[0], 1.0, -1.0 / max(K, 1)]
    found = minimize(lambda z: reached(z)["objective"], guess, method="BFGS", options={"gtol": 1e-9})
    return reached(found.x)


def objective_on(p: SpinningLines, weight: float, psi: tuple[float, float], v: Array, S: Array, w: Array) -> float:
    """Return the mean objective of theta* on given tasks, to compare a trained SIB with.

    Args:
        p: the settings.
        weight: the likelihood weight c of a reading.
        psi: mean and standard deviation of p_psi.
        v, S, w: posterior mean, sum of squares and true slope of each task, arrays of one shape.
    """
    theta = best_theta(weight, *psi, v, S)
    return float(measures(p, weight, theta, psi, v, S, (w - theta) ** 2)["objective"].mean())


def describe(p: SpinningLines, weight: float, mean: float, std: float, theta: Array, points: Points) -> Optimum:
    """Return what theta attains on average over tasks with p_psi = N(mean, std^2).

    Args:
        p: the settings.
        weight: the likelihood weight c of a reading.
        mean, std: mean and standard deviation of p_psi.
        theta: its value at each point of the quadrature.
        points: the quadrature.

    Returns:
        The mean over tasks of each number in `model.measures`, "mean" and "std" themselves, and "slope", that of theta
        against mean(x). A slope of 1 follows the posterior mean, a slope of 0 ignores x.
    """
    v, S, probability = points
    squared_error = (v - theta) ** 2 + p.sigma_w**2  # E (w - theta)^2 given x
    each = measures(p, weight, theta, (mean, std), v, S, squared_error)
    each["slope"] = (theta - probability @ theta) * (v - p.mu_w - p.mu) / (p.sigma**2 / p.n)
    found = {"mean": mean, "std": std}
    for name, values in each.items():
        found[name] = float(probability @ np.broadcast_to(values, v.shape))
    return found


def quadrature(p: SpinningLines, nodes: int = 48) -> Points:
    """Return points that stand for the distribution of tasks: expectations become weighted sums over them.

    Returns:
        Posterior means v, sums of squares S and probabilities, flat arrays of nodes^2 points.
    """
    z, weights_z = np.polynomial.hermite_e.hermegauss(nodes)
    chi2, weights_chi2 = chi_squared(p.n - 1, nodes)
    xbar = p.mu + p.sigma / math.sqrt(p.n) * z
    xbar, spread = (grid.ravel() for grid in np.meshgrid(xbar, p.sigma**2 * chi2, indexing="ij"))
    probability = np.outer(weights_z / weights_z.sum(), weights_chi2).ravel()
    return xbar + p.mu_w, spread + p.n * xbar**2, probability


def chi_squared(degrees: int, nodes: int) -> tuple[Array, Array]:
    """Return points and probabilities of Gauss-Laguerre quadrature for a chi-squared variable.

    They are computed by the method of Golub and Welsch, because scipy's `roots_genlaguerre` calls the Gamma function,
    which overflows for many degrees of freedom.
    """
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    alpha, k = degrees / 2 - 1, np.arange(nodes)
    points, vectors = eigh_tridiagonal(2 * k + alpha + 1, np.sqrt(k[1:] * (k[1:] + alpha)))
    return 2 * points, vectors[0] ** 2
