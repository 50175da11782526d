from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sibrepro.studies.spinning_lines import model as toy
from sibrepro.studies.spinning_lines import optimum as toy_optimum
from sibrepro.studies.spinning_lines.model import SpinningLines

PAPER = SpinningLines()


@pytest.mark.parametrize("degrees", [1, 2, 31, 2000])
def test_the_quadrature_has_the_moments_of_a_chi_squared_variable(degrees):
    points, weights = toy_optimum.chi_squared(degrees, 48)
    assert weights.sum() == pytest.approx(1)
    assert weights @ points == pytest.approx(degrees)
    assert weights @ (points - degrees) ** 2 == pytest.approx(2 * degrees)
    assert weights @ (points - degrees) ** 3 == pytest.approx(8 * degrees)


def test_the_quadrature_has_the_moments_of_the_tasks():
    p = SpinningLines(mu=0.7, sigma=1.3, n=6, mu_w=0.2)
    v, S, probability = toy_optimum.quadrature(p)
    assert probability @ v == pytest.approx(p.mu + p.mu_w)
    assert probability @ (v - p.mu - p.mu_w) ** 2 == pytest.approx(p.sigma**2 / p.n)
    assert probability @ S == pytest.approx(p.n * (p.sigma**2 + p.mu**2))


@pytest.mark.thorough
@pytest.mark.parametrize(("reading", "sigma"), [("sum", 1.0), ("mean", 1.0), ("sum_of_squares", 1.0), ("sum", 2.0)])
def test_free_minimisation_over_simulated_tasks_ends_at_the_optimum(reading, sigma):
    """Brute force: every task's theta, m and s as free numbers, nothing of the closed forms used."""
    p = SpinningLines(tasks=20_000, seeds=1, sigma=sigma)
    c = toy.likelihood_weights(p)[reading]
    x, _ = toy.sample_tasks(p, stream=0)
    v, S = toy.posterior_mean(p, x)[0], x.square().sum(-1)[0]
    theta = torch.full_like(v, float(v.mean())).requires_grad_()
    psi = torch.tensor([float(v.mean()), math.log(p.prior[1])], dtype=torch.float64, requires_grad=True)
    q, optimizer = p.sigma_w, torch.optim.LBFGS([theta, psi], max_iter=300, line_search_fn="strong_wolfe")

    def objective():
        optimizer.zero_grad()
        prior = torch.distributions.Normal(psi[0], psi[1].exp())
        kl = torch.distributions.kl_divergence(torch.distributions.Normal(theta, q), prior)
        each = 0.5 * c * S * ((v - theta) ** 2 + 2 * q**2) + kl
        each.mean().backward()
        return each.mean()

    optimizer.step(objective)
    best = toy_optimum.solve(p, c)
    found = float(objective().detach())
    assert found == pytest.approx(best["objective"], rel=0.02)
    assert float(psi[1].detach().exp()) == pytest.approx(best["std"], rel=0.02)
    assert float(((theta - v) ** 2).mean().detach()) / (2 * q**2) == pytest.approx(
        best["kl_posterior"], rel=0.04, abs=1e-4
    )


@settings(max_examples=40)
@given(
    n=st.integers(1, 200),
    sigma=st.floats(0.3, 3),
    sigma_w=st.floats(0.05, 2),
    mu=st.floats(-2, 2),
    weight=st.sampled_from([0.01, 1.0, 2.0]),
    seed=st.integers(0, 1000),
)
def test_no_other_psi_does_better(n, sigma, sigma_w, mu, weight, seed):
    p = SpinningLines(n=n, sigma=sigma, sigma_w=sigma_w, mu=mu)
    best = toy_optimum.solve(p, weight)
    v, S, _ = points = toy_optimum.quadrature(p)
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 1.0):
        mean, std = best["mean"] + scale * rng.normal(), best["std"] * math.exp(scale * rng.normal())
        theta = toy_optimum.best_theta(weight, mean, std, v, S)
        other = toy_optimum.describe(p, weight, mean, std, theta, points)
        assert other["objective"] >= best["objective"] - 1e-9


def test_at_the_paper_s_settings_the_readings_differ_as_the_notebook_says():
    best = {name: toy_optimum.solve(PAPER, c) for name, c in toy.likelihood_weights(PAPER).items()}
    assert best["mean"]["information"] < 1e-3
    assert best["sum_of_squares"]["kl_posterior"] < best["sum"]["kl_posterior"] < best["mean"]["kl_posterior"]
    # without any dependence on x the divergence would be (sigma^2 / n) / (2 sigma_w^2)
    assert best["mean"]["kl_posterior"] == pytest.approx(1.5625, rel=0.05)


@pytest.mark.parametrize(("sigma", "follows"), [(1.2, False), (1.6, True), (3.0, True)])
def test_in_the_informative_limit_the_slope_solves_the_quadratic_and_needs_sigma_to_the_fourth_above_4(sigma, follows):
    best = toy_optimum.solve(SpinningLines(sigma=sigma, sigma_w=1e-3, n=4096), 1.0)
    if follows:
        assert best["slope"] == pytest.approx((1 + math.sqrt(1 - 4 / sigma**4)) / 2, abs=0.02)
    else:
        assert best["slope"] < 0.01


def test_a_strong_likelihood_recovers_posterior_prior_and_information():
    best = toy_optimum.solve(PAPER, 1e4)
    assert best["kl_posterior"] < 1e-3
    assert best["kl_prior"] < 1e-3
    assert best["information"] == pytest.approx(PAPER.information, abs=2e-3)
    assert best["slope"] == pytest.approx(1, abs=1e-2)


def test_more_quadrature_points_change_nothing(monkeypatch):
    coarse = toy_optimum.solve(PAPER, 1.0)
    fine = toy_optimum.quadrature
    monkeypatch.setattr(toy_optimum, "quadrature", lambda p: fine(p, nodes=80))
    assert coarse == pytest.approx(toy_optimum.solve(PAPER, 1.0), abs=1e-9)


@pytest.mark.parametrize("K", [0, 1, 3])
def test_a_linear_xi_comes_close_to_the_optimum_from_one_step_on_but_never_below(K):
    best, linear = toy_optimum.solve(PAPER, 1.0), toy_optimum.solve_linear_xi(PAPER, 1.0, K)
    assert linear["objective"] >= best["objective"]
    assert (linear["objective"] < best["objective"] + 0.01) == (K > 0)


def test_the_objective_on_simulated_tasks_agrees_with_the_expectation():
    p = SpinningLines(tasks=20_000, seeds=1)
    x, w = (tensor[0].numpy() for tensor in toy.sample_tasks(p, stream=0))
    best = toy_optimum.solve(p, 1.0)
    on_tasks = toy_optimum.objective_on(p, 1.0, (best["mean"], best["std"]), x.mean(-1) + p.mu_w, (x**2).sum(-1), w)
    assert on_tasks == pytest.approx(best["objective"], rel=0.02)


def test_the_record_gives_back_each_optimum_and_the_curves_over_conditions():
    metrics, arrays = toy_optimum.experiment(PAPER)
    for name, value in toy_optimum.solve(PAPER, 1.0).items():
        assert metrics[f"sum/{name}"] == value
    for name, value in toy_optimum.solve_linear_xi(PAPER, 1 / 32, PAPER.K).items():
        assert metrics[f"mean/linear/{name}"] == value
    i = int(np.searchsorted(arrays["sigma"], 2.0))
    world = dataclasses.replace(PAPER, sigma=float(arrays["sigma"][i]))
    assert arrays["sigma/kl_prior"][i] == toy_optimum.solve(world, 1.0)["kl_prior"]
    assert arrays["sigma/true_information"][i] == world.information
