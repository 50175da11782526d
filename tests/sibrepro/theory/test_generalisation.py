import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from sibrepro.studies.theory import worlds as theory
from sibrepro.theory import bottleneck as ib
from sibrepro.theory import generalisation as gen

seeds = st.integers(0, 10_000)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trial_of(seed: int, letters: int = 2, n: int = 3) -> gen.Trial:
    return gen.random_trial(4, 2, letters, n, 3, np.random.default_rng(seed))


def brute_gap(trial: gen.Trial, b: int) -> float:
    """True risk minus empirical risk by loops: a fresh data set for the first, the learner's own for the second."""
    q_t, q_z, loss = trial.q_t[b].numpy(), trial.q_z[b].numpy(), trial.loss[b].numpy()
    total, n = 0.0, trial.letters.shape[1]
    for t, (d, letters) in itertools.product(
        range(len(q_t)), enumerate(itertools.product(range(q_z.shape[-1]), repeat=n))
    ):
        chance = math.prod(q_z[t, z] for z in letters)
        for w in range(loss.shape[1]):
            true_risk = sum(q_z[t, z] * loss[t, w, z] for z in range(q_z.shape[-1]))
            empirical = sum(loss[t, w, z] for z in letters) / n
            total += q_t[t] * chance * trial.q_w[b, t, d, w].item() * (true_risk - empirical)
    return total


@given(seeds)
@settings(max_examples=10)
def test_the_gap_agrees_with_loops(seed):
    trial = trial_of(seed)
    assert gen.terms(trial)["gap"].tolist() == pytest.approx([brute_gap(trial, b) for b in range(4)], abs=1e-12)


@given(seeds, st.integers(2, 3), st.integers(1, 3))
def test_theorem_2_and_each_step_of_its_repaired_proof_hold(seed, letters, n):
    terms = gen.terms(trial_of(seed, letters, n))
    chain = torch.stack([terms["gap"].abs(), terms["lemma"], terms["jensen"], terms["theorem"]])
    assert (chain.diff(dim=0) >= -1e-7).all()


@given(seeds)
def test_single_letters_carry_no_more_than_the_data_set(seed):
    trial = trial_of(seed)
    assert (gen.single_information(trial).sum(-1) <= ib.mutual_information(trial.q_dw) + 1e-12).all()


def test_with_one_example_the_single_information_is_the_information():
    trial = trial_of(0, letters=4, n=1)
    torch.testing.assert_close(gen.single_information(trial)[..., 0], ib.mutual_information(trial.q_dw))


@given(seeds)
def test_a_learner_that_does_not_see_the_data_has_no_gap(seed):
    trial = trial_of(seed)
    inductive = replace(trial, q_w=trial.aggregated[..., None, :].expand_as(trial.q_w))
    terms = gen.terms(inductive)
    assert terms["gap"].abs().max() < 1e-12
    assert terms["information"].abs().max() < 1e-12


def test_sigma_of_a_rademacher_variable_is_one():
    assert gen.subgaussian_variance(double(-1, 1), double(0.5, 0.5)).item() == pytest.approx(1, abs=1e-9)


@given(st.floats(1e-4, 0.499))
def test_sigma_of_a_bernoulli_variable_has_its_closed_form(chance):
    closed = (1 - 2 * chance) / (2 * math.log((1 - chance) / chance))
    ours = gen.subgaussian_variance(double(0, 1), double(1 - chance, chance)).item()
    assert ours == pytest.approx(closed, rel=1e-5)
    assert gen.subgaussian_variance(double(1, 0), double(1 - chance, chance)).item() == pytest.approx(closed, rel=1e-5)


@given(seeds, st.floats(0.1, 10), st.floats(-5, 5))
def test_sigma_scales_with_the_variable_and_ignores_a_shift(seed, scale, shift):
    rng = np.random.default_rng(seed)
    values, table = torch.from_numpy(rng.standard_normal(5)), torch.from_numpy(rng.dirichlet(np.ones(5)))
    sigma2 = gen.subgaussian_variance(values, table)
    torch.testing.assert_close(gen.subgaussian_variance(scale * values + shift, table), scale**2 * sigma2)


@given(seeds)
@settings(max_examples=30)
def test_sigma_agrees_with_a_bounded_optimiser_and_lies_between_variance_and_hoeffding(seed):
    rng = np.random.default_rng(seed)
    values, table = rng.standard_normal(4), rng.dirichlet(np.ones(4))
    centred = values - table @ values

    def negative(lam):
        return -2 * math.log(table @ np.exp(lam * centred)) / lam**2

    best = max(-minimize_scalar(negative, bounds=ends, method="bounded").fun for ends in ((1e-3, 60), (-60, -1e-3)))
    ours = gen.subgaussian_variance(torch.from_numpy(values), torch.from_numpy(table)).item()
    assert ours >= best - 1e-6
    assert table @ centred**2 - 1e-12 <= ours <= (np.ptp(values) / 2) ** 2 + 1e-12


def test_averaging_does_not_shrink_sigma_of_a_loss_that_ignores_the_data():
    g = double(1, -1)[:, None].expand(1, 1, 2, 2)
    for n in (1, 2, 5):
        q_w, q_z = torch.full((1, 1, 2**n, 2), 0.5, dtype=torch.float64), double(0.3, 0.7)[None, None]
        q_d, letters = gen.sequences(q_z, n)
        trial = gen.Trial(double(1)[None], q_d, q_w, q_z, letters, g)
        assert gen.empirical_variance_proxy(trial).item() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_theorem_2_is_an_equality_for_weak_learners_of_fair_coins(n):
    terms = gen.terms(gen.coin_trial(double(1e-3, 100), n))
    ratio = terms["gap"] / terms["theorem"]
    assert ratio[0].item() == pytest.approx(1, abs=1e-4)
    assert ratio[1] < 0.9


def test_too_many_data_sets_are_refused_with_advice():
    with pytest.raises(ValueError, match="smaller alphabet or n"):
        gen.sequences(torch.full((10,), 0.1), 10)
    with pytest.raises(ValueError, match="smaller alphabet or n"):  # before anything of that size is drawn
        theory.experiment(theory.ElboParams(letters=10, n=10))


@given(seeds)
def test_the_corollary_holds_for_finite_data_with_and_without_its_n(seed):
    trial, world = gen.random_likelihood_trial(4, 2, 2, 3, 3, np.random.default_rng(seed))
    terms, objective = gen.terms(trial), ib.terms(world)["popeb"]
    torch.testing.assert_close(ib.terms(world)["cross_entropy"], 3 * terms["risk"])
    torch.testing.assert_close(terms["regulariser"], 3 * terms["gap"] ** 2 / (2 * terms["sigma2"]))
    assert (objective >= terms["regulariser"] + 3 * terms["risk"] - 1e-10).all()
    assert (objective >= terms["regulariser"] + terms["risk"] - 1e-10).all()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_biased_coins_agree_with_enumerated_sequences(reduction):
    n, biases, w = 4, double(0.3, 0.8), double(0.1, 0.4, 0.9)
    found = gen.biased_coins(n, biases, w, reduction)
    loss = -torch.stack([1 - w, w], -1).log().expand(1, 2, 3, 2)
    q_z = torch.stack([1 - biases, biases], -1)[None]
    q_d, letters = gen.sequences(q_z, n)
    power = 1 if reduction == "sum" else 1 / n
    q_w = torch.softmax(-power * (letters.sum(1) @ loss.mT), -1)
    trial = gen.Trial(double(0.5, 0.5)[None], q_d, q_w, q_z, letters, loss)
    terms = {name: value.item() for name, value in gen.terms(trial).items()}
    kl = (torch.xlogy(trial.q_w, trial.q_w).sum(-1) + math.log(3)) * trial.q_d
    assert found == pytest.approx(terms | {"popeb": power * n * terms["risk"] + 0.5 * kl.sum().item()})


def test_the_study_finds_no_violation_and_repeats_itself():
    p = theory.ElboParams(worlds=260, tasks=2, n=2, letters=2, weights=2)
    found, values = theory.experiment(p)
    assert all(len(values[name]) == 260 for name in ("objective", "gap", "nll_objective"))
    assert all(np.isfinite(array).all() for array in values.values())
    errors = [value for name, value in found.items() if name.endswith("error")]
    slacks = [value for name, value in found.items() if name.endswith("slack")]
    assert len(errors) == 4
    assert len(slacks) == 6
    assert max(errors) < 1e-10
    assert min(slacks) > -1e-7
    assert theory.experiment(p)[0] == found
