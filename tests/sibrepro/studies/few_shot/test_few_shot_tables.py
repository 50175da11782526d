"""The tables of notebook 03 from made-up records."""

from __future__ import annotations

import pandas as pd
import pytest
from few_shot_records import FULL, QUICK, computed_here, own_home, published, rival, sib, unbalanced

from sibrepro import paper, tables
from sibrepro.rivals import BASELINES
from sibrepro.statistics import Score
from sibrepro.studies.few_shot import plan as few_shot_plan
from sibrepro.studies.few_shot import tables as few_shot_tables
from sibrepro.studies.few_shot.plan import published as published_results


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Published: two seeds of four settings, two rivals, and a SIB tried on unbalanced queries."""
    own_home(tmp_path / "home", monkeypatch)
    made = {
        (shots, K, s): sib(60 + 3 * K, shots=shots, K=K, seed=s) for shots in (1, 5) for K in (0, 3) for s in (0, 1)
    }
    made["ridge"], made["pt-map"] = rival(62, method="ridge"), rival(74, method="pt-map", shots=5)
    made["tried"] = unbalanced(made[1, 3, 0])
    published(*made.values())
    return made


@pytest.fixture
def results(records):
    return published_results("cifar-fs", "conv4-64")


@pytest.fixture
def variants(records):
    """Published besides: SIB with one thing changed, each with a test accuracy of its own."""
    made = {
        "running": sib(68, normalise="running"),
        "equivariant": sib(69, xi="equivariant"),
        "weak": sib(50, features="images", epochs=5),
        "weak start": sib(41, features="images", epochs=5, K=0),
        "letter": sib(66, fidelity="paper"),
        "inductive": sib(58, transductive=False),
    }
    published(*made.values(), unbalanced(made["running"]))
    return made


def mean(*records, name="best/1shot"):
    return pytest.approx(sum(record.metrics[name] for record in records) / len(records))


def test_seeds_share_a_row(records):
    rows = few_shot_tables.table_rows()
    (one,) = rows.query("K == 3 and shots == 1 and method == 'SIB'").itertuples()
    assert one.seeds == 2
    assert one.run.split() == [records[1, 3, 0].id, records[1, 3, 1].id]
    assert one.ours == mean(records[1, 3, 0], records[1, 3, 1])
    assert (one.episodes, one.eta) == (5000, 1e-3)
    assert len(rows) == 4 + 2


@pytest.mark.thorough
def test_what_is_not_planned_changes_no_table(records):
    def all_tables() -> list[pd.DataFrame]:
        results = published_results()
        shown = [few_shot_tables.table_rows(), few_shot_tables.averaging(), few_shot_tables.gains_by_backbone()]
        of_results = ("seeds", "method_scores", "comparison", "balance_scores", "orders", "rotation")
        return shown + [getattr(few_shot_tables, name)(results) for name in of_results]

    before = all_tables()
    changes = [{"eta": 0.1}, {"seed": 3}, {"batch": 4}, {"queries": 30}, {"steps": 80_000}, {"K": 7}, {"lr": 0.1}]
    strays = [sib(99, **change) for change in changes] + [sib(99, QUICK), sib(99, FULL, dataset="glyphs")]
    published(*strays, *map(unbalanced, strays), rival(99, method="ridge", test_episodes=300))
    computed_here(sib(99, K=5), sib(99), rival(99, method="pt-map"), unbalanced(sib(99, K=0)))
    for old, new in zip(before, all_tables(), strict=True):
        pd.testing.assert_frame_equal(old, new)


def test_every_kind_of_sib_has_a_name_of_its_own(variants):
    rows = few_shot_tables.table_rows()
    named = rows[rows["method"].str.contains("SIB")].set_index(["method", "shots", "K"])
    assert set(named.index) == {
        *(("SIB", shots, K) for shots in (1, 5) for K in (0, 3)),
        ("SIB, running statistics", 1, 3),
        ("SIB, equivariant ξ", 1, 3),
        ("SIB, the paper to the letter", 1, 3),
        ("SIB, 5 epochs of pretraining", 1, 3),
        ("SIB, 5 epochs of pretraining", 1, 0),
        ("inductive SIB", 1, 3),
    }
    assert named.loc[("SIB, equivariant ξ", 1, 3), "run"] == variants["equivariant"].id
    unseeing = named[~named["transductive"].astype(bool)]
    assert set(unseeing.index) == {index for index in named.index if index[2] == 0 or index[0] == "inductive SIB"}


def test_a_network_that_learned_rotations_has_rows_of_its_own(records):
    planned = few_shot_plan.plan(*few_shot_plan.ORIGINS[0]).rotation
    assert {p.rotation for several in planned.values() for p in several} == {1.0}
    runs = {(shots, K): sib(60 + 10 * (K > 0) + shots, several[0]) for (shots, K), several in planned.items()}
    published(*runs.values())
    rows = few_shot_tables.table_rows().set_index(["method", "shots", "K"])
    assert set(runs) == {(shots, K) for shots in (1, 5) for K in (0, 3)}
    for (shots, K), made in runs.items():
        assert rows.loc[("SIB, rotation", shots, K), "run"] == made.id


def test_the_living_table_takes_the_rows_and_reads_well(records, variants):
    table = tables.few_shot(few_shot_tables.table_rows())
    mine = table[(table["method"] == "SIB") & (table["K"] == 3) & (table["shots"] == 1) & table["ours"].notna()]
    assert mine["paper"].tolist() == [68.7]
    shown = tables.wide(table)
    row = shown[(shown["method"] == "SIB, η = 0.001, K = 3") & (shown["backbone"] == "conv4-64")].iloc[0]
    expected = (records[1, 3, 0].metrics["best/1shot"] + records[1, 3, 1].metrics["best/1shot"]) / 2
    assert row["CIFAR-FS 1-shot"].startswith(f"68.7 ± 0.6 / **{expected:.1f} ± ")


def test_table_1_for_reading_has_the_papers_methods_and_sib_alone(records, variants):
    by_backbone = few_shot_tables.table_1()
    assert set(by_backbone) == set(paper.few_shot().dropna(subset="value")["backbone"])
    methods = set(by_backbone["conv4-64"]["method"])
    assert {"Prototypical Net", "SIB, K = 0", "SIB, η = 0.001, K = 3"} <= methods
    assert not [method for method in methods if "our features" in method or "statistics" in method]
    assert by_backbone["wrn-28-10"]["to measure"].str.contains("--profile paper").any()
    assert "to measure" not in by_backbone["resnet12"]


def test_the_runs_of_the_notebook_show_their_gain_over_no_steps():
    runs = {(1, K): [sib(60 + K, QUICK, K=K)] for K in (0, 3)} | {(5, 3): [sib(80, QUICK, shots=5)]}
    table = few_shot_tables.this_run(runs)
    assert table["gain over K = 0 (points)"].map(bool).tolist() == [False, True, False]
    assert (
        table.loc[(1, 3), "test accuracy (%)"]
        == f"{runs[1, 3][0].metrics['best/1shot']:.2f} ± " + (table.loc[(1, 3), "test accuracy (%)"].split(" ± ")[1])
    )
    assert set(table["meta-training steps"]) == {QUICK.steps}


def test_seeds_and_checkpoints_stand_side_by_side(results, records):
    table = few_shot_tables.seeds(results)
    assert len(table) == 4
    two = [records[1, 3, s].metrics for s in (0, 1)]
    assert table.loc[(1, 3), "best checkpoint"] == pytest.approx(sum(m["best/1shot"] for m in two) / 2, abs=0.006)
    assert table.loc[(1, 3), "last checkpoint"] == pytest.approx(sum(m["last/1shot"] for m in two) / 2, abs=0.006)
    extremes = sorted(m["best/1shot"] for m in two)
    assert table.loc[(1, 3), ["lowest seed", "highest seed"]].tolist() == pytest.approx(extremes, abs=0.006)


def test_methods_stand_side_by_side(results, records):
    scores = few_shot_tables.method_scores(results).set_index(["method", "shots"])
    assert set(scores.index) == {
        *((f"SIB, K = {K}", shots) for K in (0, 3) for shots in (1, 5)),
        (BASELINES["ridge"].title, 1),
        (BASELINES["pt-map"].title, 5),
    }
    assert scores.loc[("SIB, K = 3", 1), "mean"] == mean(records[1, 3, 0], records[1, 3, 1])
    kinds = scores["kind"].to_dict()
    assert kinds[BASELINES["ridge"].title, 1] == "inductive"
    assert kinds[BASELINES["pt-map"].title, 5] == "transductive"
    assert (kinds["SIB, K = 0", 5], kinds["SIB, K = 3", 5]) == ("inductive", "transductive")


def test_other_methods_are_compared_on_the_same_episodes(results, records):
    table = few_shot_tables.comparison(results)
    assert set(table.index) == {BASELINES["ridge"].title, BASELINES["pt-map"].title}
    for name, shots in (("ridge", 1), ("pt-map", 5)):
        row = table.loc[BASELINES[name].title]
        ours = [records[shots, 3, s].arrays[f"best/{shots}shot"].astype(float) for s in (0, 1)]
        difference = sum(ours) / 2 - records[name].arrays["balanced"]
        mean = row[f"SIB ahead, {shots}-shot"].split(" ± ")[0].replace("−", "-")
        assert float(mean) == pytest.approx(100 * difference.mean() / 75, abs=0.006)
        assert row[f"{shots}-shot (%)"] == f"{records[name].metrics['balanced']:.2f} ± 0.40"
    assert table["transductive"].to_dict() == {BASELINES["ridge"].title: "no", BASELINES["pt-map"].title: "yes"}
    assert table.loc[BASELINES["ridge"].title, "episodes per second"] == "123"


def test_the_literature_leaves_out_what_table_1_prints():
    table = few_shot_tables.literature()
    assert set(table.index) <= {cls.title for cls in BASELINES.values()}
    assert not table["printed in"].str.contains("SIB", regex=False).any()
    assert table.loc["PT-MAP", "5-shot"].tolist() == [88.82, 90.68]


def test_balance_and_orders(variants):
    results = published_results()
    balance = few_shot_tables.balance_scores(results).set_index("method")
    assert balance.loc["SIB, K = 3", "unbalanced"] == 63.0
    assert balance.loc["SIB, K = 3", "sib"]
    assert "SIB, running statistics, K = 3" in balance.index
    assert not balance.loc[BASELINES["ridge"].title, "sib"]
    assert BASELINES["pt-map"].title not in balance.index, "it has a 5-shot record only"
    assert "SIB, K = 0" not in balance.index, "it was not tried"
    orders = few_shot_tables.orders(results)
    assert orders.index.tolist() == ["SIB, K = 3", "SIB, running statistics, K = 3"]
    assert orders.loc["SIB, K = 3", "answers that change (%)"] == 4.0


def test_scores_of_variants(records, variants):
    scores = few_shot_tables.variant_scores(published_results(), "running statistics", "no statistics")
    assert list(scores) == ["SIB, K = 0", "SIB, K = 3", "SIB, running statistics"], "the other is not published"
    assert scores["SIB, running statistics"].mean == mean(variants["running"])
    assert scores["SIB, K = 0"].mean == mean(records[1, 0, 0], records[1, 0, 1])


def test_scores_of_orders(variants):
    orders = few_shot_tables.order_scores(published_results())
    assert orders["averaged over ten orders"] == Score(70.2, 0.4)
    assert orders["SIB, equivariant ξ"].mean == mean(variants["equivariant"])


def test_reasons_are_what_may_explain_a_difference_to_the_paper(records, variants):
    reasons = few_shot_tables.reasons(published_results())
    assert list(reasons) == [
        "paper, K = 0",
        "paper, K = 3",
        "ours, K = 0",
        "ours, K = 3",
        "5 epochs of pretraining, K = 0",
        "running statistics, K = 3",
        "5 epochs of pretraining, K = 3",
    ]
    assert reasons["paper, K = 3"].mean == 68.7
    assert reasons["ours, K = 3"].mean == mean(records[1, 3, 0], records[1, 3, 1])
    assert reasons["5 epochs of pretraining, K = 0"].mean == mean(variants["weak start"])


def test_gains_by_shots(results, records):
    gains = few_shot_tables.gains(results)
    for shots, score in gains.items():
        pairs = [
            records[shots, 3, s].metrics[f"best/{shots}shot"] - records[shots, 0, s].metrics[f"best/{shots}shot"]
            for s in (0, 1)
        ]
        assert score.mean == pytest.approx(sum(pairs) / 2)
    assert list(gains) == [1, 5]
    assert few_shot_tables.gains(results, K=5) == {}


def test_gains_of_all_networks_stand_beside_the_papers(results, variants):
    found = few_shot_tables.network_gains().set_index(["whose", "dataset", "backbone", "shots"])
    ours = found.loc["ours"]
    assert set(ours.index) == {
        ("cifar-fs", "conv4-64", 1),
        ("cifar-fs", "conv4-64", 5),
        ("cifar-fs", "conv4-64, 5 epochs of pretraining", 1),
    }
    assert ours["start"].tolist() == pytest.approx([60, 60, 41], abs=1.5)
    assert ours["gain"].tolist() == pytest.approx([9, 9, 9], abs=2)
    assert (ours["ci95"] > 0).all()
    theirs = found.loc["paper"]
    printed = paper.few_shot().query("method == 'SIB' and K == 3").dropna(subset="value")
    assert len(theirs) == len(printed)
    assert theirs.loc["mini-imagenet", "conv4-128", 1]["gain"] == pytest.approx(62.59 - 53.62)
    assert theirs.loc["cifar-fs", "wrn-28-10", 5]["start"] == 83.5
