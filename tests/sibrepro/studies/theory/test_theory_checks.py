"""The statements of notebook 01 are true whatever the sizes of its worlds, and those of a record can turn out false."""

from __future__ import annotations

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from sibrepro import plots
from sibrepro.facts import Record
from sibrepro.studies.theory import checks, figures, tables, worlds
from sibrepro.studies.theory.worlds import ElboParams

SIZES = [
    ElboParams(),
    ElboParams(worlds=20, tasks=1, n=2, letters=2, weights=2, dim=1, seed=1),
    ElboParams(worlds=20, tasks=2, n=4, letters=3, weights=5, dim=4, seed=7),
]


@pytest.fixture(scope="module")
def record():
    p = ElboParams(worlds=60)
    metrics, arrays = worlds.experiment(p)
    return Record("made-up", 1, dataclasses.asdict(p), metrics, {"data": {}}, arrays, None)


@pytest.mark.thorough
@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("check", [checks.evidence, checks.gradient, checks.errata])
def test_exact_statements_hold_for_worlds_of_all_sizes(check, p):
    found = check(p)
    assert all(found.values()), checks.report(found)


def test_the_theorems_hold_in_a_run(record):
    found = checks.theorem_1(ElboParams(worlds=60), record) | checks.theorem_2(record) | checks.corollary(record)
    assert all(found.values()), checks.report(found)
    assert "in all of 60 random worlds" in checks.report(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [("decomposition_error", 0.1), ("bound_slack", -0.1), ("constant_error", 0.1), ("lemma_slack", -0.1)],
)
def test_a_violated_theorem_is_reported(record, name, value):
    broken = dataclasses.replace(record, metrics=record.metrics | {name: value})
    found = checks.theorem_1(ElboParams(worlds=60), broken) | checks.theorem_2(broken)
    assert list(found.values()).count(False) == 1
    assert checks.report(found).count("NO ") == 1


def test_the_world_of_densities_has_the_loss_that_sampling_gives():
    s, tau, n = 0.3, 0.2, 5
    rng = np.random.default_rng(0)
    z, w = s * rng.standard_normal(400_000), tau * rng.standard_normal(400_000)
    losses = 0.5 * np.log(2 * np.pi * s**2) + (z - w) ** 2 / (2 * s**2)
    popeb, printed = checks.densities(n, s, tau)
    assert printed == pytest.approx(losses.mean(), abs=5 * losses.std() / 400_000**0.5)
    assert popeb == n * printed


def test_averaging_a_loss_that_ignores_the_data_does_not_shrink_sigma():
    table = tables.proof_step()
    assert table["σ of L"].tolist() == [1.0] * 4
    assert_allclose(table["σ/√n, as the proof has it"], table.index.to_numpy() ** -0.5, atol=5e-4)


def test_computed_sigmas_are_the_known_ones():
    computed, known = tables.known_sigmas().to_numpy().T
    assert_allclose(computed, known, atol=1e-5)


def test_the_normaliser_lies_between_a_sure_and_an_unsure_classifier():
    table = tables.log_normaliser(n=10, ways=4)
    unsure = round(0.9 * np.log(4), 2)
    assert table.loc["0"].tolist() == [unsure] * 3
    assert table["largest"].max() == unsure
    assert table["smallest"].min() == table.loc["100,000", "mean of log Z_n"] == 0


def test_coins_have_the_limits_that_the_notebook_names(record):
    last = tables.coins_over_n(record).iloc[-1]
    assert last["plain sum: n gen"] == pytest.approx(1, abs=1e-3)
    assert last["plain sum: I, nats"] == pytest.approx(np.log(2) / 2, abs=1e-3)


def test_the_curves_of_theorem_1_meet_in_the_aligned_world_alone(record):
    beta = record.arrays["path/beta"]
    gaps = {}
    for kind in ("aligned", "random"):
        objective, bound = record.arrays[f"path/{kind}/popeb"], record.arrays[f"path/{kind}/ib"]
        assert np.ptp(bound) < 1e-10
        assert abs(beta[objective.argmin()] - 1) < 0.15  # the posterior minimises the objective
        gaps[kind] = (objective - bound).min()
    assert gaps["aligned"] < 1e-3 < gaps["random"]


def test_the_bound_is_an_equality_for_weak_learners_of_coins(record):
    for n in (1, 2, 4, 10):
        ratio = record.arrays[f"coin/{n}"]
        assert 0.999 < ratio[0] <= ratio.max() < 1 + 1e-9


@pytest.mark.thorough
def test_every_figure_can_be_drawn_and_names_its_axes(record):
    plots.style()
    drawn = [figures.evidence(record.arrays, 3), figures.constant_bound(record.arrays)]
    drawn += [figures.gap_against_bound(record.arrays), figures.corollary(record.arrays)]
    for figure in drawn:
        assert all(axis.get_xlabel() for axis in figure.axes if axis.get_label() != "<colorbar>")
        plt.close(figure)
    for figure in (figures.figure_1(), figures.figure_2()):
        plt.close(figure)
