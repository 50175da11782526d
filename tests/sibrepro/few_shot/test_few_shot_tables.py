"""The tables of notebook 03 from made-up records."""

from __future__ import annotations

import pytest
from few_shot_records import QUICK, baseline, realism, sib
from sibrepro.few_shot.results import gather

from sibcore.baselines import BASELINES
from sibrepro import tables
from sibrepro.few_shot import tables as few_shot_tables


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    made = {
        (shots, K, s): sib(60 + 3 * K, shots=shots, K=K, seed=s) for shots in (1, 5) for K in (0, 3) for s in (0, 1)
    }
    made["quick"] = sib(55, QUICK)
    made["ridge"], made["pt-map"] = baseline(62, method="ridge"), baseline(74, method="pt-map", shots=5)
    made["realism"] = realism(made[1, 3, 0])
    return made


@pytest.fixture
def results(records):
    return gather("cifar-fs", "conv4-64")


def test_seeds_share_a_row_and_profiles_do_not(records):
    rows = few_shot_tables.table_rows()
    (full,) = rows.query("profile == 'cpu' and K == 3 and shots == 1 and method == 'SIB'").itertuples()
    assert full.seeds == 2
    assert set(full.run.split()) == {records[1, 3, 0].id, records[1, 3, 1].id}
    assert len(rows.query("profile == 'quick'")) == 1
    assert len(rows) == 4 + 1 + 2


def test_the_living_table_takes_the_rows_and_its_reading_form_the_fullest(records):
    table = tables.few_shot(few_shot_tables.table_rows())
    mine = table[(table["method"] == "SIB") & (table["K"] == 3) & (table["shots"] == 1) & table["ours"].notna()]
    assert set(mine["profile"]) == {"cpu", "quick"}
    assert set(mine["paper"]) == {68.7}
    shown = tables.wide(few_shot_tables.fullest_rows(table))
    row = shown[(shown["method"].str.startswith("SIB, η = 0.001, K = 3")) & (shown["backbone"] == "conv4-64")].iloc[0]
    assert row["CIFAR-FS 1-shot"].startswith("68.7 ± 0.6 / **6")


def test_each_seed_has_its_best_and_its_last_checkpoint(results, records):
    table = few_shot_tables.checkpoints_and_seeds(results)
    assert table.loc[(1, 3, 1), "last"] == pytest.approx(records[1, 3, 1].metrics["last/1shot"])
    assert len(table) == 8


def test_methods_stand_side_by_side(results):
    scores = few_shot_tables.method_scores(results)
    assert {"SIB, K = 0", "SIB, K = 3", BASELINES["ridge"].title} <= set(scores["method"])
    against = few_shot_tables.sib_against(results, 3)
    assert against.loc[BASELINES["ridge"].title, "1-shot"] == pytest.approx(7, abs=3)
    assert against.loc[BASELINES["pt-map"].title, "5-shot"] == pytest.approx(-5, abs=3)


def test_baselines_say_what_they_are_and_what_is_printed_of_them(results):
    table = few_shot_tables.baseline_table(results)
    assert table.loc[(BASELINES["pt-map"].title, 5), "tasks per second"] == 123
    assert table.loc[(BASELINES["ridge"].title, 1), "options"] == "scale = 10.0"
    literature = few_shot_tables.literature_table(results)
    assert set(literature.index) == {cls.title for cls in BASELINES.values()}


def test_balance_and_orders(results):
    balance = few_shot_tables.balance_scores(results).set_index("method")
    assert balance.loc["SIB, K = 3", "unbalanced"] == 63.0
    assert BASELINES["ridge"].title in balance.index
    assert BASELINES["pt-map"].title not in balance.index, "it has a 5-shot record only"
    assert few_shot_tables.order_table(results).loc["1-shot, SIB, K = 3", "orders/changed"] == 4.0
