import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from sibrepro.theory import bayes

means = st.floats(-5, 5)
stds = st.floats(0.05, 5)
seeds = st.integers(0, 10_000)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(means, stds, means, stds)
def test_gaussian_kl_agrees_with_torch_distributions(mean_q, std_q, mean_p, std_p):
    q, p = Normal(double(mean_q), double(std_q)), Normal(double(mean_p), double(std_p))
    ours = bayes.kl_gaussian(double(mean_q), double(std_q), double(mean_p), double(std_p))
    torch.testing.assert_close(ours, kl_divergence(q, p), rtol=1e-9, atol=1e-9)


def test_gaussian_kl_agrees_with_monte_carlo():
    q, p = Normal(double(0.7), double(1.3)), Normal(double(-0.4), double(0.9))
    samples = 0.7 + 1.3 * torch.randn(400_000, generator=generator(), dtype=torch.float64)
    log_ratio = q.log_prob(samples) - p.log_prob(samples)
    error = log_ratio.std() / math.sqrt(len(samples))
    assert abs(log_ratio.mean() - bayes.kl_gaussian(0.7, 1.3, -0.4, 0.9)) < 4 * error


def test_evidence_agrees_with_numerical_integration_over_w():
    tasks = bayes.random_linear_tasks(4, 3, 1, 0.5, generator())
    grid = torch.linspace(-40, 40, 20_001, dtype=torch.float64)
    numeric = torch.trapezoid(tasks.log_joint(grid[:, None]).exp(), grid).log()
    torch.testing.assert_close(tasks.log_evidence(), numeric, rtol=1e-10, atol=1e-10)


def test_posterior_agrees_with_numerical_integration_over_w():
    tasks = bayes.random_linear_tasks(4, 3, 1, 0.5, generator(1))
    grid = torch.linspace(-40, 40, 20_001, dtype=torch.float64)
    density = (tasks.log_joint(grid[:, None]) - tasks.log_evidence()[:, None]).exp()
    mean = torch.trapezoid(density * grid, grid)
    variance = torch.trapezoid(density * (grid - mean[:, None]) ** 2, grid)
    torch.testing.assert_close(tasks.posterior().mean[:, 0], mean)
    torch.testing.assert_close(tasks.posterior().variance[:, 0], variance)


@given(seeds, st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_evidence_is_elbo_plus_kl_for_any_gaussian_q(seed, tasks, n, dim):
    g = generator(seed)
    model = bayes.random_linear_tasks(tasks, n, dim, 0.5, g)
    mean = torch.randn(tasks, dim, generator=g, dtype=torch.float64)
    q = MultivariateNormal(mean, bayes.random_covariances(tasks, dim, g))
    total = model.elbo(q) + kl_divergence(q, model.posterior())
    torch.testing.assert_close(model.log_evidence(), total, rtol=1e-10, atol=1e-10)


def test_elbo_agrees_with_monte_carlo():
    g = generator(2)
    model = bayes.random_linear_tasks(2, 3, 2, 0.5, g)
    mean, covariance = torch.randn(2, 2, generator=g, dtype=torch.float64), bayes.random_covariances(2, 2, g)
    noise = torch.randn(100_000, 2, generator=g, dtype=torch.float64)
    elbo = model.elbo(MultivariateNormal(mean, covariance))
    for t in range(2):
        w = mean[t] + noise @ torch.linalg.cholesky(covariance[t]).mT
        values = model.log_joint(w)[t] - MultivariateNormal(mean[t], covariance[t]).log_prob(w)
        error = values.std() / math.sqrt(len(w))
        assert abs(values.mean() - elbo[t]) < 4 * error


def test_tempering_divides_the_log_likelihood_by_n_up_to_a_constant():
    model = bayes.random_linear_tasks(1, 4, 2, 0.5, generator(3))
    w = torch.randn(6, 2, generator=generator(4), dtype=torch.float64)
    prior = MultivariateNormal(model.m, model.S).log_prob(w)
    difference = (model.tempered().log_joint(w) - prior) - (model.log_joint(w) - prior) / 4
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))


@given(seeds, st.integers(0, 5))
def test_gauss_hermite_gives_the_moments_of_the_normal(seed, degree):
    eps, weights = bayes.gauss_hermite(2, order=3)
    expected = 0 if degree % 2 else math.prod(range(1, degree, 2))
    assert (weights @ eps[:, 0, seed % 2] ** degree).item() == pytest.approx(expected, abs=1e-12)


@given(seeds, st.sampled_from(["mean", "sum"]))
def test_kl_direction_with_the_true_gradient_is_autograd_of_the_negative_elbo(seed, reduction):
    g = generator(seed)
    features, labels = torch.randn(6, 2, generator=g, dtype=torch.float64), torch.arange(6) % 3
    theta = (torch.randn(2, 3, 2, generator=g, dtype=torch.float64) * 0.5).requires_grad_()
    psi = torch.randn(2, 3, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(5, 3, 2, generator=g, dtype=torch.float64), torch.full((5,), 0.2, dtype=torch.float64)

    def loss(y_hat):
        return torch.nn.functional.cross_entropy(y_hat.movedim(-1, 1), labels.expand(5, -1), reduction="none")

    def true_gradient(y_hat):
        y_hat = y_hat.detach().requires_grad_()
        return torch.autograd.grad(loss(y_hat).sum(), y_hat)[0]

    ours = bayes.kl_direction(theta, psi, features, true_gradient, noise, reduction)
    (true,) = torch.autograd.grad(bayes.negative_elbo(theta, psi, features, loss, noise, reduction), theta)
    torch.testing.assert_close(ours, true, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_kl_direction_vanishes_at_the_posterior_of_its_reading(reduction):
    n = 5
    x, y = np.linspace(-1, 2, n), np.linspace(0.5, -1, n)
    power = 1 / n if reduction == "mean" else 1
    precision = 1 + power * (x**2).sum()  # prior N(0, 1), noise variance 1, by hand
    mean, std = power * (x * y).sum() / precision, precision**-0.5
    theta, psi = double(mean, math.log(std))[:, None, None], torch.zeros(2, 1, 1).double()
    target = torch.from_numpy(y)[:, None]
    noise, features = bayes.gauss_hermite(1, 3), torch.from_numpy(x)[:, None]
    direction = bayes.kl_direction(theta, psi, features, lambda y_hat: y_hat - target, noise, reduction)
    assert direction.abs().max().item() < 1e-12


@given(seeds, st.integers(1, 4))
def test_no_other_diagonal_gaussian_is_nearer_than_the_best(seed, dim):
    g = generator(seed)
    q = MultivariateNormal(torch.randn(dim, generator=g, dtype=torch.float64), bayes.random_covariances(1, dim, g)[0])
    best = bayes.best_diagonal(q)
    scale = torch.exp(0.3 * torch.randn(dim, generator=g, dtype=torch.float64))
    other = MultivariateNormal(best.mean, torch.diag(best.variance * scale))
    assert kl_divergence(best, q) <= kl_divergence(other, q) + 1e-12
