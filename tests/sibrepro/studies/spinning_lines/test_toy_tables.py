"""The tables of notebook 02 show what is in the records, and its statements can turn out false."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sibrepro.facts import Record
from sibrepro.studies.spinning_lines import model, optimum, plan, tables
from sibrepro.studies.spinning_lines.model import SpinningLines

PAPER = SpinningLines(seeds=1)
READINGS = ("sum", "mean", "sum_of_squares")


def made_up(experiment, p, metrics, arrays):
    return Record(experiment.id(p), 1, dataclasses.asdict(p), metrics, {"data": {}}, arrays, None)


@pytest.fixture(scope="module")
def exact():
    return made_up(plan.OPTIMUM, PAPER, *optimum.experiment(PAPER))


def trained(theta, objective=(20.0, 1.0), **metrics):
    """A run of SIB whose test tasks all have w = E[w|x] = 1 and S = 32, with these theta^0 ... theta^K."""
    arrays = {name: np.ones((1, 4)) for name in ("w", "posterior_mean")}
    arrays["sum_of_x_squared"] = np.full((1, 4), 32.0)
    arrays["theta"] = np.tile(np.array(theta, dtype=float)[None, :, None, None], (3, 1, 1, 4))
    arrays["objective"] = np.tile(np.array(objective)[None, :, None], (3, 1, 1))
    arrays |= dict.fromkeys(("mse", "kl_posterior"), arrays["objective"])
    found = {f"{reading}/{name}": 0.5 for reading in READINGS for name in tables.COLUMNS}
    return made_up(plan.SIB, PAPER, found | metrics, arrays)


def bnn(mse):
    return made_up(plan.BNN, PAPER, {"mse": mse}, {"mse": np.array([[1.0], [mse]])})


@pytest.mark.parametrize("changes", [{}, {"n": 1}, {"sigma": 3.0, "mu": -1.0, "sigma_w": 0.5}])
def test_closed_forms_agree_with_the_simulation(changes):
    table = tables.closed_forms(dataclasses.replace(PAPER, **changes))
    assert np.allclose(*table.to_numpy().T, rtol=0.02, atol=0.01)


def test_the_cells_of_the_notebook_are_compared_with_the_first_seed_of_the_summed_reading():
    arrays = plan.SIB.published(plan.PAPER).arrays
    reached = {name: float(arrays[name][0, -1, 0]) for name in tables.COLUMNS}
    assert (tables.beside_published(reached)["difference"] == 0).all()
    reached["kl_prior"] += 0.5
    assert tables.beside_published(reached)["difference"].tolist().count(0.5) == 1


def test_without_the_published_run_there_is_nothing_to_compare_with(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    assert tables.beside_published({"mse": 0.1})["difference"].isna().all()


def test_the_table_of_runs_has_a_row_for_every_run_sorted_by_its_settings():
    wide = dataclasses.replace(PAPER, sigma=2.0)
    metrics = {"sum/kl_posterior": 1.0, "sum/kl_prior": 0.2, "sum/information": 0.3}
    table = tables.runs([made_up(plan.SIB, p, metrics, {}) for p in (wide, PAPER)])
    assert table["sigma"].tolist() == [1.0, 2.0]
    assert table.iloc[1]["true I(w;d), nats"] == round(wide.information, 3)
    assert table.iloc[1]["E KL(q‖p(w|d)) / I(w;d)"] == round(1 / wide.information, 3)


def test_errors_are_beside_the_least_possible(exact):
    table = tables.errors(PAPER, trained([0, 1], **{"sum/mse": 0.03}), bnn(0.05))
    assert table.loc["SIB, sum"].tolist() == [0.03, 0.01]
    assert table.loc["BNN"].tolist() == [0.05, round(model.bnn_floor(PAPER), 4)]


def test_the_optimum_is_beside_the_linear_one_and_the_trained_one(exact):
    table = tables.optimum_and_training(PAPER, trained([0, 1]), exact)
    assert len(table) == 3 * len(READINGS)
    assert table.loc[("sum", "exact optimum"), "test MSE"] == round(exact.metrics["sum/mse"], 3)
    assert table.loc[("mean", "trained, 150 epochs"), "test MSE"] == 0.5


def test_the_excess_is_zero_for_the_optimum_itself(exact):
    psi = exact.metrics["sum/mean"], exact.metrics["sum/std"]
    task = np.ones(4), np.full(4, 32.0), np.ones(4)
    best = optimum.objective_on(PAPER, 1.0, psi, *task)
    table = tables.excess(PAPER, trained([0, 1], objective=(best + 2, best)), exact)
    assert table.loc["sum"].tolist() == [2.0, 0.0]


def test_each_condition_changes_one_thing_of_the_problem():
    table = tables.conditions(PAPER)
    assert table.loc["as here", "true I(w;d), nats"] == round(PAPER.information, 4)
    sigma = dataclasses.replace(PAPER, sigma=2.0)
    assert table.loc["sigma = 2.0", "KL(p_ψ‖p(w)), nats"] == round(optimum.solve(sigma, 1.0)["kl_prior"], 4)
    # a posterior that ignores x: E (v - E v)^2 / (2 sigma_w^2) = (sigma^2 / n) / (2 sigma_w^2)
    assert table.loc["linear ξ, K = 0", "E KL(q‖p(w|d)), nats"] == pytest.approx(1.5625, abs=1e-3)


def test_distances_are_means_over_tasks_for_each_step_up_to_k():
    run = trained([5, 3, 2, 1.5, 9])
    assert tables.distances(PAPER, run, "sum").tolist() == [4, 2, 1, 0.5]


def test_statements_are_true_and_false_as_the_runs_are(exact):
    def holds(sib, other):
        return list(tables.statements(PAPER, sib, other, exact, "sum").values())

    best = model.bnn_floor(PAPER)
    steady, astray = [5, 4, 3, 2, 9], [5, 4, 4.5, 2, 1]
    assert holds(trained(steady, objective=(90.0, best / 2)), bnn(best))[:3] == [True] * 3
    assert holds(trained(astray, objective=(90.0, 2 * best)), bnn(best))[:2] == [False] * 2
    assert not holds(trained(steady), bnn(2 * best))[2]
    assert holds(trained(steady, objective=(20.0, 19.0)), bnn(best))[3:] == [False, True, True]
    assert not holds(trained(steady, objective=(20.0, -1.0)), bnn(best))[4]


@pytest.mark.parametrize(
    ("values", "judged"),
    [
        ({"kl_posterior": 0.07, "kl_prior": 0.07}, "yes"),
        ({"kl_posterior": 0.08, "kl_prior": 0.01}, "small only beside its start"),
        ({"kl_posterior": 2.1}, "no"),
        ({"information": 0.03}, "no: q ignores x"),
    ],
)
def test_a_divergence_is_close_to_zero_below_a_tenth_of_the_information(exact, values, judged):
    """Training starts at 20 nats."""
    run = trained([0, 1], **{f"sum/{name}": value for name, value in values.items()})
    assert tables.this_run(PAPER, run, exact).loc["sum", "close to zero?"] == judged
