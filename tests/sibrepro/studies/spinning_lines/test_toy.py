from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from sibrepro.studies.spinning_lines import model as toy
from sibrepro.studies.spinning_lines.model import SpinningLines

SMALL = SpinningLines(tasks=16, epochs=3, batch=4, seeds=3, n=8)


def weights_of(p, readings=1):
    torch.manual_seed(0)
    weights = {name: value.repeat(readings, *[1] * (value.dim() - 1)) for name, value in toy.init_sib(p).items()}
    return weights | {
        "lambda": torch.randn(p.seeds * readings, dtype=torch.float64),
        "psi": torch.randn(p.seeds, 2).double(),
    }


def test_the_paper_s_settings_have_0_7085_nats_of_information():
    assert SpinningLines().information == pytest.approx(0.7085, abs=5e-5)


def test_information_is_the_mean_divergence_of_posterior_from_prior():
    p = SpinningLines(tasks=20_000, seeds=1, mu=0.4, sigma=1.3, mu_w=-0.7, sigma_w=0.3, n=5)
    x, _ = toy.sample_tasks(p, stream=0)
    kl = kl_divergence(Normal(toy.posterior_mean(p, x), p.sigma_w), Normal(*p.prior))
    assert float(kl.mean()) == pytest.approx(p.information, abs=5 * float(kl.std()) / math.sqrt(20_000))


def test_slopes_follow_the_closed_form_prior_and_posterior():
    p = SpinningLines(tasks=50_000, seeds=1, mu=0.5, sigma=2.0, mu_w=1.5, sigma_w=0.2, n=4)
    x, w = toy.sample_tasks(p, stream=0)
    residual = w - toy.posterior_mean(p, x)
    for values, (mean, std) in ((w, p.prior), (residual, (0.0, p.sigma_w))):
        assert float(values.mean()) == pytest.approx(mean, abs=5 * std / math.sqrt(50_000))
        assert float(values.std()) == pytest.approx(std, rel=0.02)
    assert abs(float(torch.corrcoef(torch.stack([residual[0], x.mean(-1)[0]]))[0, 1])) < 0.03


def test_a_seed_draws_the_same_tasks_whatever_its_company():
    alone = toy.sample_tasks(dataclasses.replace(SMALL, seed=2, seeds=1), stream=0)
    together = toy.sample_tasks(dataclasses.replace(SMALL, seed=0, seeds=3), stream=0)
    for a, b in zip(alone, together, strict=True):
        assert torch.equal(a[0], b[2])


def test_training_and_test_tasks_differ():
    assert not torch.equal(toy.sample_tasks(SMALL, 0)[0], toy.sample_tasks(SMALL, 1)[0])


def test_the_trajectory_is_eq_toy_written_out_as_a_loop():
    p, weights = SMALL, weights_of(SMALL)
    x, _ = toy.sample_tasks(p, stream=0)
    got = torch.stack(toy.trajectory(weights, x, K=3, eta=0.01))
    for s in range(p.seeds):
        xi = torch.nn.Sequential(
            torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ).double()
        torch.nn.utils.vector_to_parameters(weights["xi"][s], xi.parameters())
        for t in range(p.tasks):
            theta = weights["lambda"][s].clone()
            for k in range(4):
                assert torch.allclose(got[k, s, t], theta, rtol=0, atol=1e-12)
                step = sum(x_i * xi((theta * x_i).reshape(1, 1)).squeeze() for x_i in x[s, t])
                theta = (theta - 0.01 * step).detach()


@pytest.mark.parametrize("reading", ["sum", "mean", "sum_of_squares"])
def test_the_objective_is_the_expected_loss_plus_the_divergence_to_the_prior(reading):
    p = SMALL
    x, w = toy.sample_tasks(p, stream=0)
    theta, psi = torch.randn(p.seeds, p.tasks).double(), torch.randn(p.seeds, 2).double()
    c = toy.likelihood_weights(p)[reading]
    tasks = toy.posterior_mean(p, x), x.square().sum(-1), (w - theta).square()
    got = toy.measures(p, c, theta, (psi[:, :1], psi[:, 1:].exp()), *tasks)["objective"]
    q, prior = Normal(theta, p.sigma_w), Normal(psi[:, :1], psi[:, 1:].exp())
    draws = q.sample((20_000,))
    y = w[..., None] * x
    squares = (y - draws[..., None] * x).square()
    loss = {"sum": squares.sum(-1) / 2, "mean": squares.mean(-1) / 2, "sum_of_squares": squares.sum(-1)}[reading]
    error = loss.std(0) / math.sqrt(20_000)
    assert ((got - loss.mean(0) - kl_divergence(q, prior)).abs() < 5 * error + 1e-9).all()


def test_the_curves_are_the_quantities_of_figure_3():
    p = SMALL
    x, w = toy.sample_tasks(p, stream=0)
    theta, psi = torch.randn(p.seeds, p.tasks).double(), torch.randn(p.seeds, 2).double()
    tasks = toy.posterior_mean(p, x), x.square().sum(-1), (w - theta).square()
    got = toy.measures(p, 1.0, theta, (psi[:, :1], psi[:, 1:].exp()), *tasks)
    for s in range(p.seeds):
        prior = Normal(psi[s, 0], psi[s, 1].exp())
        q = Normal(theta[s], p.sigma_w)
        expected = {
            "mse": torch.mean((w[s, :, None] * x[s] - theta[s, :, None] * x[s]) ** 2),
            "kl_posterior": kl_divergence(q, Normal(x[s].mean(-1) + p.mu_w, p.sigma_w)).mean(),
            "kl_prior": kl_divergence(prior, Normal(*torch.tensor(p.prior, dtype=torch.float64))),
            "information": kl_divergence(q, prior).mean(),
        }
        for name, value in expected.items():
            assert float(got[name][s].mean()) == pytest.approx(float(value), rel=1e-9)


def test_seeds_trained_together_end_where_each_ends_alone():
    _, together = toy.sib_experiment(SMALL)
    _, alone = toy.sib_experiment(dataclasses.replace(SMALL, seed=1, seeds=1))
    for name in ("mse", "kl_posterior", "kl_prior", "information", "objective"):
        assert np.allclose(together[name][:, :, 1], alone[name][:, :, 0], rtol=1e-4, atol=1e-6), name
    assert not np.allclose(together["mse"][:, :, 0], alone["mse"][:, :, 0], rtol=1e-2)


def test_training_minimises_each_reading_s_own_objective():
    p = SpinningLines(tasks=64, epochs=30, seeds=2, lr=1e-2)
    metrics, arrays = toy.sib_experiment(p)
    start, end = arrays["objective"][:, 0], arrays["objective"][:, -1]
    assert (end < 0.5 * start).all()
    assert metrics["mean/information"] < metrics["sum/information"] < metrics["sum_of_squares/information"]


def test_the_record_holds_one_step_more_than_was_trained_and_k_0_is_lambda():
    _, arrays = toy.sib_experiment(SMALL)
    assert arrays["theta"].shape == (3, SMALL.K + 2, SMALL.seeds, SMALL.tasks)
    assert np.ptp(arrays["theta"][:, 0], axis=-1).max() == 0


@pytest.mark.parametrize("changes", [{"K": 0}, {"n": 1}, {"tasks": 1}, {"batch": 99}, {"seeds": 1}])
def test_the_extremes_that_are_allowed_work(changes):
    metrics, arrays = toy.sib_experiment(dataclasses.replace(SMALL, **{"epochs": 1, **changes}))
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(np.isfinite(value).all() for value in arrays.values())


def test_the_bnn_s_floor_is_the_residual_of_w_given_one_input():
    p = SpinningLines(tasks=40_000, seeds=1, sigma=1.5, sigma_w=0.2, n=3)
    x, w = toy.sample_tasks(p, stream=0)
    one = x[0, :, 0]
    slope, intercept = np.polyfit(one, w[0], 1)
    error = (one * (w[0] - slope * one - intercept)) ** 2
    assert float(error.mean()) == pytest.approx(toy.bnn_floor(p), abs=5 * float(error.std()) / math.sqrt(40_000))


def test_a_row_of_weights_is_a_network_of_three_layers():
    row = toy.init_sib(SMALL)["xi"]
    x = torch.randn(SMALL.seeds, 5).double()
    assert row.shape == (SMALL.seeds, 8 + 8 + 64 + 8 + 8 + 1)
    y = toy.mlp(row, x)
    w1, b1, w2, b2, w3, b3 = row[0].split([8, 8, 64, 8, 8, 1])
    hidden = torch.relu(x[0][:, None] * w1 + b1)
    expected = torch.relu(hidden @ w2.view(8, 8).T + b2) @ w3 + b3
    assert torch.allclose(y[0], expected)


def test_the_bnn_learns_the_pooled_line_and_no_task():
    p = SpinningLines(tasks=64, epochs=60, seeds=2, lr=1e-2)
    metrics, arrays = toy.bnn_experiment(p)
    assert metrics["mse"] < 3 * toy.bnn_floor(p)
    assert arrays["mse"][0].mean() > 10 * metrics["mse"]
