"""The runs of notebook 06, and its tables and figures from made-up records."""

from __future__ import annotations

import dataclasses

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from few_shot_records import FULL, TASKS, computed_here, own_home, published, record
from matplotlib import pyplot as plt

from sibrepro import paper, tables
from sibrepro.facts.record import as_dict
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.query_size import figures, plan
from sibrepro.studies.query_size import tables as size_tables
from sibrepro.studies.query_size.experiment import QUERY_SIZE, RESCALED
from sibrepro.studies.query_size.plan import QuerySizeNotebook

mpl.use("agg")
SHORT = {"backbone": "conv4-128", "features": "images", "epochs": 10, "steps": 10_000}  # as it is planned on CIFAR-FS
MINI = {"dataset": "mini-imagenet", "backbone": "conv4-128", "features": "images", "averaged": True}
MINI |= {"test_episodes": 2000}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def home(tmp_path, monkeypatch):
    own_home(tmp_path / "home", monkeypatch)


def made(n, accuracy, experiment=QUERY_SIZE, **changes):
    """A record whose accuracy is `accuracy` percent in each task, with 15 queries and with n."""

    def answers(queries):
        return np.full(TASKS, round(accuracy / 100 * 5 * queries))

    arrays = {f"{s}/{how}": answers(q) for s in ("val", "test") for how, q in (("usual", 15), ("own", n))}
    metrics = {"risk": 0.8, "gap": -0.1, "gap_ci95": 0.01, "sigma": 2.0, "sigma_worst": 3.0, "sigma_bound": 10.0}
    return record(experiment, dataclasses.replace(FULL, queries=n, **changes), metrics, arrays)


def test_one_setting_at_a_time_for_sweeps():
    (one,) = QuerySizeNotebook(n=10, shots=5, backbones="conv4-128", epochs=20).experiments()
    assert (one.queries, one.shots, one.backbone, one.features, one.epochs) == (10, 5, "conv4-128", "images", 20)
    (one,) = QuerySizeNotebook(n=10, epochs=20).experiments()
    assert (one.backbone, one.features, one.epochs) == ("conv4-64", "shipped", 0), "shipped features have their network"


def test_seeds_of_a_setting_are_asked_for_together():
    settings = QuerySizeNotebook(n=[3, 15], shots=[1, 5], seeds=2, seed=4).experiments()
    assert [(p.shots, p.queries, p.seed) for p in settings] == [
        (shots, n, seed) for shots in (1, 5) for n in (3, 15) for seed in (4, 5)
    ]


@pytest.mark.parametrize("dataset", plan.BACKBONES)
def test_the_plan_is_the_papers_protocol_but_for_n_and_a_shorter_training(dataset):
    default, planned = as_dict(FewShot()), plan.plan(dataset)
    assert set(planned) == {
        (backbone, shots, n) for backbone in plan.BACKBONES[dataset] for shots in plan.SHOTS for n in plan.SIZES
    }
    for (backbone, shots, n), settings in planned.items():
        assert [p.seed for p in settings] == ([0, 1, 2] if n == 15 else [0])
        varied = {"dataset", "backbone", "features", "shots", "queries", "test_episodes", "seed", "averaged"}
        shorter = (dataset, backbone) == ("cifar-fs", "conv4-128")
        for p in settings:
            assert (p.dataset, p.backbone, p.shots, p.queries) == (dataset, backbone, shots, n)
            assert p.averaged == (dataset == "mini-imagenet")
            assert (p.epochs, p.steps) == ((10, 10_000) if shorter else (0, 40_000))
            changed = {name for name, value in as_dict(p).items() if value != default[name]}
            assert changed <= varied | ({"epochs", "steps"} if shorter else set())


def test_all_that_is_read_is_declared():
    declared = plan.declared()
    assert set(declared) == {FEW_SHOT, QUERY_SIZE, RESCALED}
    for dataset in plan.BACKBONES:
        wanted = {p for settings in plan.plan(dataset).values() for p in settings}
        assert all(wanted <= set(settings) for settings in declared.values())


def test_every_size_is_published_on_cifar_fs():
    for experiment in (QUERY_SIZE, RESCALED):
        found = plan.published("cifar-fs", experiment)
        for key, settings in plan.plan("cifar-fs").items():
            ids = [record.id for record in found[key]]
            assert ids, key
            planned = [experiment.id(p) for p in settings]
            assert ids == (planned if key[0] == "conv4-64" else planned[: len(ids)]), "all seeds, or the first"


def test_a_table_of_what_there_is_beside_the_paper(home):
    first, second, few = made(15, 80), made(15, 60, seed=1), made(3, 60)
    published(first, second, few)
    rows = size_tables.table_rows(plan.published("cifar-fs"))
    assert len(rows) == 2 * 2 + 2, "n = 15 is tested once, with 15"
    assert rows.query("n == 3")["tested"].tolist() == [15, 3, 15, 3]
    assert set(rows.query("n == 15")["ours"]) == {70}
    assert set(rows.query("n == 15")["run"]) == {f"{first.id} {second.id}"}
    assert rows.query("n == 15")["seeds"].tolist() == [2, 2]
    table = tables.query_size(rows)
    assert len(table) == len(paper.query_size()) + len(rows)
    assert (table["verdict"] == tables.NOT_MEASURED).sum() == len(paper.query_size())


def test_on_mini_imagenet_it_stands_beside_the_papers_numbers(home):
    published(made(10, 64, **MINI), made(3, 60))
    table = size_tables.table()
    ours = table[table["ours"].notna()]
    assert set(ours["dataset"]) == {"mini-imagenet", "cifar-fs"}
    beside = table[table["paper"].notna() & table["ours"].notna()]
    assert sorted(beside["paper"]) == [63.22, 65.34]


def test_what_is_not_planned_changes_nothing(home):
    published(made(3, 60), made(15, 80), made(3, 70, **SHORT), made(3, 77, RESCALED), made(10, 64, **MINI))

    def everything():
        return (
            size_tables.table(),
            size_tables.corollary(plan.published()),
            plan.published("cifar-fs", RESCALED),
        )

    rows, terms, longer = everything()
    assert rows["ours"].notna().sum() == 4 + 2 + 4 + 4
    changes = [
        {"eta": 1e-2},
        {"seed": 3},
        {"batch": 4},
        {"K": 5},
        {"steps": 80_000},
        {"steps": 1000},
        {"features": "images", "epochs": 20},
        {"test_episodes": 1000},
        SHORT | {"steps": 40_000},
        SHORT | {"epochs": 5},
        SHORT | {"epochs": 0},
        SHORT | {"backbone": "wrn-28-10"},
        MINI | {"test_episodes": 5000},
    ]
    strays = [made(n, 99, experiment, **c) for c in changes for n in (15, 10) for experiment in (QUERY_SIZE, RESCALED)]
    published(*strays, made(4, 99), made(3, 99, seed=1))
    computed_here(made(30, 99), made(15, 99), made(15, 99, RESCALED))
    again = everything()
    pd.testing.assert_frame_equal(again[0], rows)
    pd.testing.assert_frame_equal(again[1], terms)
    assert {key: [r.id for r in records] for key, records in again[2].items()} == {
        key: [r.id for r in records] for key, records in longer.items()
    }


def test_differences_are_paired():
    gain = size_tables.difference([made(3, 60), made(3, 40, seed=1)], [made(10, 80)])
    assert (gain.mean, gain.ci95) == (pytest.approx(30), pytest.approx(0))


def test_the_terms_of_the_corollary(home):
    published(made(5, 60))
    (row,) = size_tables.corollary(plan.published("cifar-fs")).to_dict("records")
    assert row["coefficient"] == pytest.approx(5 * 5 / (2 * 2.0**2))
    assert row["coefficient_sure"] == pytest.approx(5 * 5 / (2 * 10.0**2))
    assert row["term"] == pytest.approx(row["coefficient"] * 0.01)
    assert row["term_sure"] == pytest.approx(row["coefficient_sure"] * 0.01)


def test_the_figures_show_the_paper_beside_each_network_of_ours(home):
    for origin in ({}, SHORT):
        published(
            *(made(n, accuracy, shots=shots, **origin) for shots in (1, 5) for n, accuracy in ((3, 60), (15, 80)))
        )
    published(made(3, 77, RESCALED))
    found, longer = plan.published("cifar-fs"), plan.published("cifar-fs", RESCALED)
    axes = figures.accuracy_over_n(size_tables.table_rows(found), longer).axes
    titles = [axis.get_title() for axis in axes[:3]]
    assert [title.split(":")[0] for title in titles] == ["paper", "ours", "ours"]
    assert [("Conv-4-64" in title, "Conv-4-128" in title) for title in titles[1:]] == [(True, False), (False, True)]
    test_classes = axes[1].get_lines()[0]
    assert test_classes.get_label() == "test classes, tested with 15"
    assert test_classes.get_xydata().tolist() == [[3, 60], [15, 80]]
    assert axes[1].get_lines()[-1].get_xydata().round(1).tolist() == [[3, 77.3]]
    panels = figures.corollary_terms(size_tables.corollary(found)).axes
    assert [len(axis.get_lines()) for axis in panels] == [5, 4, 4, 4], "four settings, and zero in the first"


@pytest.fixture
def ten_and_forty_five():
    """Runs of n = 10 and of n = 45, which is worse with 15 queries, and as good with steps of the trained length."""
    small, large, same = made(10, 80), made(45, 60), made(45, 80, RESCALED)
    return {("conv4-64", 1, 10): [small], ("conv4-64", 1, 45): [large]}, {("conv4-64", 1, 45): [same]}


def test_forty_five_queries_against_ten(ten_and_forty_five):
    found, longer = ten_and_forty_five
    assert size_tables.verdicts(found, longer, "conv4-64").loc["1-shot"].tolist() == ["yes", "yes", "no"]
    assert size_tables.verdicts(found, {}, "conv4-64").empty
    table = size_tables.from_best_to_most({"cifar-fs": (found, longer)})
    assert table.index.tolist() == ["CIFAR-FS, Conv-4-64, 1-shot"]
    assert table.iloc[0].tolist()[:3] == ["-3.6", "-20.00 ± 0.00", "+0.00 ± 0.00"]
    assert table.iloc[0].iloc[3] == "80.00 ± 0.00 → 60.00 ± 0.00 %"


def test_trainings_of_another_length_are_not_compared(ten_and_forty_five):
    found, longer = ten_and_forty_five
    found["conv4-64", 1, 45] = [made(45, 60, steps=10_000)]
    assert size_tables.from_best_to_most({"cifar-fs": (found, longer)}).empty


def test_test_accuracies_have_a_column_for_each_n(home):
    published(made(15, 80), made(3, 60))
    shown = size_tables.accuracies(size_tables.table())
    assert shown.columns.tolist() == [3, 15]
    assert shown.index.get_level_values(-1).tolist() == ["tested with 15", "tested with n"]
    assert shown[15].tolist() == ["80.0 ± 0.0"] * 2, "with n = 15 both tests are the same"


def test_own_runs_show_the_three_tests():
    metrics = {"test/usual": 70.0, "test/own": 66.0}
    p = dataclasses.replace(FULL, queries=3)
    own = size_tables.own_runs([record(QUERY_SIZE, p, metrics)], [record(RESCALED, p, {"test": 68.0})])
    assert own.loc[("Conv-4-64", 1, 3)].tolist() == [70.0, 68.0, 66.0]
