"""The runs of notebook 04, and its tables from made-up records."""

from __future__ import annotations

import pandas as pd
import pytest
from few_shot_records import FULL, QUICK, computed_here, diagnosed, own_home, published, sib

from sibrepro import paper, tables
from sibrepro.facts.record import as_dict
from sibrepro.meta_training.along_the_steps import DIAGNOSTICS
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.synthetic_gradients import plan
from sibrepro.studies.synthetic_gradients import tables as study_tables
from sibrepro.studies.synthetic_gradients.plan import SyntheticGradientsNotebook
from sibrepro.studies.synthetic_gradients.tables import table_rows

ETAS = (1e-1, 1e-2, 1e-3, 1e-4)
WHOLE = SyntheticGradientsNotebook(trained_shots=[1, 5], K=[0, 1, 3, 5], eta=[*ETAS])


@pytest.fixture
def home(tmp_path, monkeypatch):
    own_home(tmp_path / "home", monkeypatch)


def test_the_whole_grid_is_the_trainings_of_the_papers_table():
    settings, printed = WHOLE.experiments(), paper.synthetic_gradients()
    trainings = printed[["variant", "trained_shots", "K", "eta"]].drop_duplicates()
    assert len(settings) == len(trainings)
    assert sum(e.transductive for e in settings) == (trainings["variant"] == "SIB").sum()
    varied = {"features", "shots", "K", "eta", "transductive", "steps", "val_episodes", "test_episodes"}
    default = as_dict(FewShot())
    for e in settings:
        assert {name for name, value in as_dict(e).items() if value != default[name]} <= varied
    records = [sib(65, e) for e in settings]
    table = tables.synthetic_gradients(table_rows({plan.key(record): [record] for record in records}))
    assert len(table) == len(printed)
    assert (table["ours"].notna() & table["paper"].notna()).all()


def test_the_plan_is_the_same_grid_at_the_full_protocol():
    grid = plan.plan("cifar-fs", "conv4-64")
    assert set(grid) == {
        ("SIB" if e.transductive else "inductive SIB", e.shots, e.K, e.eta) for e in WHOLE.experiments()
    }
    for (kind, shots, K, eta), settings in grid.items():
        assert [p.seed for p in settings] == ([0, 1, 2] if (kind, eta) == ("SIB", 1e-3) else [0])
        for p in settings:
            assert (p.transductive, p.shots, p.K, p.eta) == (kind == "SIB", shots, K, eta)
            assert (p.steps, p.test_episodes, p.lr, p.queries, p.features) == (40_000, 5000, 1e-3, 15, "shipped")


def test_the_whole_study_is_published():
    for experiment, settings in plan.declared().items():
        assert [record.id for record in experiment.facts(settings)] == [experiment.id(p) for p in settings]
    assert set(plan.published()) == set(plan.plan("cifar-fs", "conv4-64"))
    assert sorted(plan.equal_rates()) == sorted(ETAS)
    assert list(plan.diagnostics()) == [*plan.STEPS]
    assert [record.params["steps"] for record in plan.stages()] == [*plan.STAGES]


def test_one_setting_at_a_time_for_sweeps():
    p = SyntheticGradientsNotebook(variants="SIB", trained_shots=5, K=3, eta=1e-2)
    assert [(e.transductive, e.shots, e.K, e.eta) for e in p.experiments()] == [(True, 5, 3, 1e-2)]


def test_the_beginnings_of_a_training_differ_in_their_length_alone():
    stages = SyntheticGradientsNotebook(stages=[10, 30], steps=100).stage_experiments()
    assert [e.steps for e in stages] == [10, 30, 100]
    assert len({(e.seed, e.lr, e.batch, e.K, e.shots) for e in stages}) == 1


def test_what_is_missing_is_marked(home):
    first, second = sib(71), sib(72, seed=1)
    published(first, second)
    table = tables.synthetic_gradients(table_rows(plan.published()))
    assert len(table) == len(paper.synthetic_gradients())
    measured = table[table["ours"].notna()]
    assert measured["tested_shots"].tolist() == [1, 5]
    for tested, ours in zip((1, 5), measured["ours"], strict=True):
        assert ours == pytest.approx(sum(r.metrics[f"best/{tested}shot"] for r in (first, second)) / 2)
    assert set(measured["run"]) == {f"{first.id} {second.id}"}
    assert (set(measured["seeds"]), set(measured["steps"])) == ({2}, {40_000})
    assert (table[table["ours"].isna()]["verdict"] == tables.NOT_MEASURED).all()


@pytest.mark.thorough
def test_what_is_not_planned_changes_nothing(home):
    published(sib(71), sib(70, eta=1e-2), sib(69, transductive=False), sib(60, K=0), sib(40, eta=1e-2, lr=1e-2))
    published(diagnosed(), diagnosed(steps=100))

    def everything() -> tuple[pd.DataFrame, pd.DataFrame, list[list[str]]]:
        found = plan.published()
        others = [*plan.equal_rates().values(), plan.stages(), plan.diagnostics().values()]
        return table_rows(found), study_tables.validation(found), [[record.id for record in group] for group in others]

    before = everything()
    changes = [
        {"eta": 0.5},
        {"seed": 3},
        {"eta": 1e-2, "seed": 1},
        {"batch": 4},
        {"queries": 30},
        {"steps": 80_000},
        {"steps": 50},
        {"K": 2},
        {"lr": 1e-2},
        {"eta": 1e-1, "lr": 1e-2},
        {"shots": 5, "transductive": False},
        {"K": 0, "eta": 1e-2},
        {"test_episodes": 1000},
    ]
    published(*(sib(99, **change) for change in changes), *(diagnosed(**change) for change in changes))
    computed_here(sib(99, K=5), sib(99), sib(99, eta=1e-1, lr=1e-1), diagnosed(K=1), diagnosed(steps=300))
    rows, validation, others = everything()
    pd.testing.assert_frame_equal(rows, before[0])
    pd.testing.assert_frame_equal(validation, before[1])
    assert others == before[2]


def test_choosing_on_validation_classes(home):
    published(*(sib(accuracy, K=K, eta=eta) for K, eta, accuracy in ((1, 1e-3, 60), (3, 1e-3, 64), (3, 1e-2, 62))))
    published(sib(68, seed=1), sib(90, K=0), sib(90, transductive=False), sib(90, shots=5))
    table = study_tables.validation(plan.published())
    assert table.stack().idxmax() == (3, 1e-3)
    assert table.loc[3, 1e-3] == 61, "seeds are averaged: 59 and 63"
    assert table.stack().count() == 3


def test_both_readings_of_the_learning_rate(home):
    own, lower, equal = sib(70), sib(69, eta=1e-2), sib(40, eta=1e-2, lr=1e-2)
    published(own, lower, equal)
    found = plan.published()
    assert [r.id for r in found["SIB", 1, 3, 1e-2]] == [lower.id]
    readings = {eta: [r.id for r in records] for eta, records in plan.equal_rates().items()}
    assert readings == {1e-3: [own.id], 1e-2: [equal.id]}, "at 1e-3 the two readings meet"
    p = SyntheticGradientsNotebook(equal_rates=True, eta=[1e-1, 1e-3])
    assert [(e.eta, e.lr) for e in p.equal_rate_experiments()] == [(1e-1, 1e-1)]
    assert SyntheticGradientsNotebook(eta=[1e-1, 1e-3]).equal_rate_experiments() == []


def test_the_stages_shown_are_those_of_the_planned_training(home):
    published(*(diagnosed(steps=steps) for steps in (40_000, 3000)))
    published(diagnosed(steps=1000, transductive=False), diagnosed(steps=300, seed=1), diagnosed(steps=QUICK.steps))
    assert [r.params["steps"] for r in plan.stages("cifar-fs", "conv4-64")] == [3000, 40_000]
    assert plan.stages("cifar-fs", "conv4-128") == []


def test_diagnostics_are_of_planned_trainings():
    declared = plan.declared()
    assert set(declared[DIAGNOSTICS]) <= set(declared[FEW_SHOT])
    assert FULL in declared[DIAGNOSTICS]


def test_gains_of_three_steps_beside_the_papers():
    printed = paper.synthetic_gradients().rename(columns={"value": "paper"})
    found = {}
    for kind in ("inductive SIB", "SIB"):
        found[kind, 1, 0, 1e-3] = [sib(60, transductive=kind == "SIB", K=0)]
        for eta in ETAS:
            found[kind, 1, 3, eta] = [sib(60, transductive=kind == "SIB", eta=eta)]
    table = study_tables.gains(found, printed)
    assert table.index.to_list() == [(k, t) for k in ("inductive SIB", "SIB") for t in ("1-shot", "5-shot")]
    theirs = [cell.split(" / ")[0] for cell in table.loc["SIB", "1-shot"]]
    assert theirs == ["-0.3", "+9.5", "+9.4", "+5.8"], "from the smallest eta to the largest"
    assert {cell.split(" / ")[1] for cell in table.to_numpy().flat} == {"+0.00 ± 0.00"}, "the same answers"


def test_own_runs_beside_the_published_ones():
    mine, theirs = sib(70, QUICK), [sib(72), sib(74, seed=1)]
    beside = study_tables.beside_published([mine, sib(60, QUICK, K=0)], {("SIB", 1, 3, 1e-3): theirs})
    assert beside["tested 1-shot"].iloc[0] == mine.metrics["best/1shot"]
    assert beside["published, tested 5-shot"].iloc[0] == pytest.approx(sum(r.metrics["best/5shot"] for r in theirs) / 2)
    assert beside["published, tested 1-shot"].isna().tolist() == [False, True], "nothing is published for K = 0"
    assert beside.index.get_level_values("η").tolist() == ["0.001", "–"]
