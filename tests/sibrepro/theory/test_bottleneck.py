import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from sibrepro.theory import bottleneck as ib

seeds = st.integers(0, 10_000)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4))


def world_of(seed: int, size: tuple[int, int, int] = (2, 3, 3), make=ib.random_world) -> ib.World:
    return make(4, *size, np.random.default_rng(seed))


def brute_force(world: ib.World, b: int) -> dict[str, float]:
    """Every quantity of Theorem 1 for one world, by loops over Python floats and its definition as an expectation."""
    q_t, q_d, q_w, p_w, p_d = (table[b].numpy() for table in (world.q_t, world.q_d, world.q_w, world.p_w, world.p_d))
    T, D, W = q_w.shape
    marginal = [[sum(q_d[t, d] * q_w[t, d, w] for d in range(D)) for w in range(W)] for t in range(T)]
    names = ("popeb", "information", "cross_entropy", "conditional_entropy", "data_entropy", "prior_gap")
    out = dict.fromkeys(names, 0.0)
    for t, d, w in itertools.product(range(T), range(D), range(W)):
        weight = q_t[t] * q_d[t, d] * q_w[t, d, w]
        out["popeb"] += weight * (-math.log(p_d[t, w, d]) + math.log(q_w[t, d, w] / p_w[w]))
        out["information"] += weight * math.log(q_w[t, d, w] / marginal[t][w])
        out["cross_entropy"] -= weight * math.log(p_d[t, w, d])
        out["conditional_entropy"] -= weight * math.log(q_d[t, d] * q_w[t, d, w] / marginal[t][w])
        out["data_entropy"] -= weight * math.log(q_d[t, d])
        out["prior_gap"] += weight * math.log(marginal[t][w] / p_w[w])
    return out


@given(seeds)
@settings(max_examples=20)
def test_every_term_agrees_with_loops(seed):
    world = world_of(seed)
    terms = ib.terms(world)
    for b in range(4):
        expected = brute_force(world, b)
        assert {name: terms[name][b].item() for name in expected} == pytest.approx(expected, abs=1e-10)
        assert terms["ibt"][b].item() == pytest.approx(expected["information"] + expected["cross_entropy"])
        assert terms["ib"][b].item() == pytest.approx(expected["information"] + expected["conditional_entropy"])


@given(seeds, sizes)
def test_the_objective_is_information_plus_cross_entropy_plus_prior_gap(seed, size):
    terms = ib.terms(world_of(seed, size))
    torch.testing.assert_close(terms["popeb"], terms["ibt"] + terms["prior_gap"], rtol=0, atol=1e-10)


@given(seeds, sizes)
def test_theorem_1_holds(seed, size):
    terms = ib.terms(world_of(seed, size))
    assert (terms["popeb"] >= terms["ib"] - 1e-10).all()


@given(seeds, sizes)
def test_theorem_1_is_an_equality_in_aligned_worlds(seed, size):
    terms = ib.terms(world_of(seed, size, ib.aligned_world))
    torch.testing.assert_close(terms["popeb"], terms["ib"], rtol=0, atol=1e-10)


@given(seeds, sizes)
def test_the_bottleneck_bound_is_the_entropy_of_the_data_whatever_q_of_w_is(seed, size):
    terms = ib.terms(world_of(seed, size))
    torch.testing.assert_close(terms["ib"], terms["data_entropy"], rtol=0, atol=1e-10)


@given(seeds)
def test_no_prior_or_likelihood_beats_the_optimal_model(seed):
    world = world_of(seed)
    best, terms = ib.with_optimal_model(world), ib.terms(world)
    torch.testing.assert_close(best.p_d.sum(-1), torch.ones_like(best.p_d[..., 0]))
    torch.testing.assert_close(ib.terms(best)["popeb"], terms["data_entropy"] + terms["task_information"])
    assert (ib.terms(best)["popeb"] <= terms["popeb"] + 1e-12).all()


@given(seeds)
def test_the_true_posterior_minimises_the_objective(seed):
    world = world_of(seed)
    at_posterior = ib.terms(ib.with_tempered_posterior(world, 1.0))["popeb"]
    evidence = torch.einsum("bw,btwd->btd", world.p_w, world.p_d)
    expected = -(world.q_t[..., None] * world.q_d * evidence.log()).sum((-2, -1))
    torch.testing.assert_close(at_posterior, expected)
    for other in (world, ib.with_tempered_posterior(world, 0.5), ib.with_tempered_posterior(world, 2.0)):
        assert (ib.terms(other)["popeb"] >= at_posterior - 1e-12).all()


def test_many_temperatures_at_once_are_each_as_alone():
    world, betas = ib.random_world(1, 2, 3, 3, np.random.default_rng(0)), torch.tensor([0.1, 1.0, 7.0]).double()
    together = ib.terms(ib.with_tempered_posterior(world, betas))
    for i, beta in enumerate(betas.tolist()):
        alone = ib.terms(ib.with_tempered_posterior(world, beta))
        for name in ("popeb", "information", "ibt", "ib"):
            torch.testing.assert_close(together[name][i], alone[name][0])


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), seeds)
def test_discrete_kl_agrees_with_torch_distributions(weights, seed):
    q = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    p = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(len(weights))))
    torch.testing.assert_close(ib.kl_discrete(q, p), kl_divergence(Categorical(q), Categorical(p)))


def test_discrete_kl_counts_an_impossible_letter_as_nothing():
    q, p = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    assert ib.kl_discrete(q, p).item() == pytest.approx(math.log(2))


def test_mutual_information_of_a_copy_is_the_entropy_and_of_a_product_zero():
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert ib.mutual_information(torch.diag(q)).item() == pytest.approx(-(q * q.log()).sum().item())
    assert ib.mutual_information(q[:, None] * q).item() == pytest.approx(0, abs=1e-15)


def test_mutual_information_survives_probabilities_whose_product_underflows():
    joint = torch.tensor([[1e-200, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert 0 <= ib.mutual_information(joint).item() < 1e-100


def test_tables_are_distributions_and_a_seed_gives_the_same_ones():
    one, other = (ib.dirichlet((50, 2, 7), np.random.default_rng(3)) for _ in range(2))
    torch.testing.assert_close(one.sum(-1), torch.ones(50, 2, dtype=torch.float64))
    assert torch.equal(one, other)
    assert (one > 0).all()
