"""The table over K and eta from made-up records."""

from __future__ import annotations

import pytest
from few_shot_records import FULL, QUICK, sib
from sibrepro.facts.runs import as_dict
from sibrepro.few_shot.results import is_plain
from sibrepro.synthetic_gradients.results import SyntheticGradientsNotebook

from sibrepro import tables
from sibrepro.synthetic_gradients import results as ablation


@pytest.fixture(autouse=True)
def no_committed_records(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))


def test_the_whole_grid_is_the_papers_39_trainings():
    p = SyntheticGradientsNotebook(trained_shots=[1, 5], K=[0, 1, 3, 5], eta=[1e-1, 1e-2, 1e-3, 1e-4])
    settings = p.experiments()
    assert len(settings) == 39
    assert sum(e.transductive for e in settings) == 26
    assert all(is_plain(as_dict(e)) for e in settings)
    table = tables.synthetic_gradients(
        ablation.table_rows(
            {(("SIB" if e.transductive else "inductive SIB"), e.shots, e.K, e.eta): [r] for e, r in made(p)}
        )
    )
    assert len(table) == 78
    assert (table["ours"].notna() & table["paper"].notna()).all()


def made(p):
    return [(e, sib(65, e)) for e in p.experiments()]


def test_one_setting_at_a_time_for_sweeps():
    p = SyntheticGradientsNotebook(variants=["SIB"], trained_shots=[5], K=[3], eta=[1e-2])
    assert [(e.transductive, e.shots, e.K, e.eta) for e in p.experiments()] == [(True, 5, 3, 1e-2)]


def test_the_beginnings_of_a_training_differ_in_their_length_alone():
    stages = SyntheticGradientsNotebook(stages=[10, 30], steps=100).stage_experiments()
    assert [e.steps for e in stages] == [10, 30, 100]
    assert len({(e.seed, e.lr, e.batch, e.K, e.shots) for e in stages}) == 1


def test_what_is_missing_is_marked_and_the_fullest_runs_count():
    sib(50, QUICK), sib(71, FULL)
    found = ablation.settings("cifar-fs", "conv4-64")
    table = tables.synthetic_gradients(ablation.table_rows(found))
    assert len(table) == 78
    measured = table[table["ours"].notna()]
    assert measured["steps"].tolist() == [40_000, 40_000]
    assert sorted(measured["tested_shots"]) == [1, 5]
    assert (table[table["ours"].isna()]["verdict"] == tables.NOT_MEASURED).all()


def test_choosing_on_validation_classes():
    for K, eta, accuracy in ((1, 1e-3, 60), (3, 1e-3, 64), (3, 1e-2, 62)):
        sib(accuracy, K=K, eta=eta)
    table = ablation.validation_table(ablation.settings("cifar-fs", "conv4-64"))
    assert table.stack().idxmax() == (3, 1e-3)
    assert table.loc[3, 1e-3] == 59


def test_both_readings_of_the_rate():
    sib(70, eta=1e-3), sib(69, eta=1e-2), sib(40, eta=1e-2, lr=1e-2)
    own, tied = ablation.readings("cifar-fs", "conv4-64")
    assert sorted(own) == [1e-3, 1e-2]
    assert sorted(tied) == [1e-3, 1e-2], "at 1e-3 the two readings meet"
    p = SyntheticGradientsNotebook(tied=True, eta=[1e-1, 1e-3])
    assert [(e.eta, e.lr) for e in p.tied_experiments()] == [(1e-1, 1e-1)]


def test_the_stages_shown_are_those_of_the_longest_training():
    for steps in (100, 1000):
        sib(60, QUICK, steps=steps)
    for steps in (3000, 40_000):
        sib(70, FULL, steps=steps), sib(50, FULL, steps=steps, transductive=False)
    sib(71, FULL, seed=1)
    assert [r.params["steps"] for r in ablation.stages("cifar-fs", "conv4-64")] == [3000, 40_000]
    assert all(r.params["transductive"] for r in ablation.stages("cifar-fs", "conv4-64"))
    assert ablation.stages("cifar-fs", "conv4-128") == []
