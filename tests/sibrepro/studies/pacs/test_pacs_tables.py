"""Scores and the table from made-up records."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from unittest import mock

import made_up
import numpy as np
import pandas as pd
import pytest
from adaptation_records import IMAGES, grid, record, scores_of, stages
from scipy import stats
from sklearn.metrics import confusion_matrix

from sibcore.datasets.pacs import CLASSES, DOMAINS
from sibrepro import paper
from sibrepro.facts import flat, publish
from sibrepro.params import of_profile
from sibrepro.studies.pacs import banks, figures, plan, tables
from sibrepro.studies.pacs.experiment import ADAPTATION, Adaptation
from sibrepro.studies.pacs.first_stage import FINE_TUNED
from sibrepro.studies.pacs.plan import StagesNotebook
from sibrepro.studies.pacs.second_stage import ETAS, SECOND_STAGE, TASKS

ALL = {("source-only", 0): 60.0, ("SIB-Rot", 0): 61.0, ("SIB-Rot", 3): 70.0}
SHIPPED = {"features": "shipped", "steps": 300, "lr": 2e-3, "alpha": 1.0}  # as published


@pytest.fixture(autouse=True)
def nothing_published(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))


def test_the_score_of_one_training_is_the_share_of_right_answers_with_its_binomial_interval():
    score = tables.score([record(70, target="photo")])
    assert score.mean == pytest.approx(70)
    assert score.ci95 == pytest.approx(196 * np.sqrt(0.7 * 0.3 / IMAGES))


def test_the_gain_is_paired_by_image_and_by_seed():
    before = [record(60, target="photo", K=0, seed=seed) for seed in (0, 1)]
    after = [record(70, target="photo", K=3, seed=seed) for seed in (0, 1, 2)]
    gain = tables.gain(before, after)
    assert gain.mean == pytest.approx(10)
    one = tables.gain(before[:1], after[:1])
    first, second = (tables.correct([r])[0].astype(float) for r in (before[0], after[0]))
    low, high = stats.ttest_rel(second, first).confidence_interval(0.95)
    assert one.ci95 == pytest.approx(100 * (high - low) / 2, rel=0.02)


def test_the_average_needs_all_four_domains():
    records = grid(ALL)
    found = scores_of(records)
    assert list(found) == list(ALL)
    assert tables.scores(found["SIB-Rot", 3])["average"].mean == pytest.approx(70)
    gain = tables.gains(found["SIB-Rot", 0], found["SIB-Rot", 3])["average"]
    single = [tables.gain(found["SIB-Rot", 0][t], found["SIB-Rot", 3][t]).ci95 for t in DOMAINS]
    assert gain.mean == pytest.approx(9, abs=0.5)
    assert gain.ci95 == pytest.approx(np.sqrt(np.square(single).sum()) / 4)
    del found["SIB-Rot", 3]["photo"]
    assert list(tables.scores(found["SIB-Rot", 3])) == [t for t in DOMAINS if t != "photo"]
    assert "average" not in tables.gains(found["SIB-Rot", 0], found["SIB-Rot", 3])


def test_planned_trainings_count_and_others_do_not():
    planned = [record(80, target="photo", seed=seed, **SHIPPED) for seed in (1, 0)]
    longer, left_out = SHIPPED | {"steps": 600}, SHIPPED | {"left_out": "sketch"}
    others = [record(99, target="photo", **settings) for settings in (longer, left_out)]
    publish.add(ADAPTATION, [*others, *planned])
    found = plan.published()
    assert [r.params["seed"] for r in found["shipped"]["SIB-Rot", 3]["photo"]] == [0, 1]
    assert {r.id for scores in found.values() for r in plan.records(scores)} == {r.id for r in planned}
    assert plan.seeds(found["shipped"], ("SIB-Rot", 3)) == 0, "three targets have none"


def test_every_planned_training_is_declared_for_publication():
    declared = plan.declared()
    for experiment, planned in declared.items():
        assert len({experiment.id(p) for p in planned}) == len(planned)
    kinds = [(settings, key, count) for settings, counts in plan.ONE_STAGE.values() for key, count in counts.items()]
    for settings, (method, K), count in kinds:
        of_kind = Adaptation(method=method, K=K, **settings)
        found = [p for p in declared[ADAPTATION] if dataclasses.replace(p, target=of_kind.target, seed=0) == of_kind]
        assert Counter(p.target for p in found) == dict.fromkeys(DOMAINS, count)
    assert len(declared[ADAPTATION]) == len(DOMAINS) * sum(count for *_, count in kinds)
    assert {*plan.SEARCH, *plan.TWO_SOURCES, *plan.THREE_SOURCES} == set(declared[FINE_TUNED])
    for changes in (*plan.TWO_STAGES.values(), *plan.OTHERS.values()):
        found = [p for p in declared[SECOND_STAGE] if changes.items() <= dataclasses.asdict(p).items()]
        assert {p.target for p in found} == {*DOMAINS}
        assert {p.first_seed for p in found if not p.held} == {*plan.FIRST_SEEDS}
    held = {(p.target, p.held) for p in declared[SECOND_STAGE] if p.held}
    assert held == {*itertools.permutations(DOMAINS, 2)}


def test_the_table_has_every_number_of_the_paper_and_every_one_of_ours():
    publish.add(ADAPTATION, grid(ALL, **SHIPPED))
    table = tables.table(plan.published())
    assert len(table.dropna(subset="paper").drop_duplicates(["target", "method", "K"])) == len(paper.pacs())
    assert len(table.dropna(subset="ours")) == len(ALL) * (len(DOMAINS) + 1), "and the average"
    row = table.query("target == 'average' and method == 'SIB-Rot' and K == 3").iloc[0]
    assert (row["paper"], row["ours"], row["seeds"], row["features"]) == (89.6, pytest.approx(70), 2, "shipped")
    assert len(row["run"].split()) == 8
    assert set(table[table["method"] == "JiGen"]["backbone"]) == {"resnet18"}
    names = ["target", "method", "K", "backbone", "paper", "ours", "ours_ci95", "seeds", "steps", "run"]
    assert set(names) <= set(table)


def test_without_records_the_table_is_the_papers():
    table = tables.table(plan.published())
    assert len(table) == len(paper.pacs())
    assert table["ours"].isna().all()


def test_confusions_are_those_of_scikit_learn():
    taken = record(70, target="photo")
    expected = confusion_matrix(taken.arrays["labels"], taken.arrays["predicted"], normalize="true")
    assert np.allclose(tables.confusion([taken]), expected)


def test_gains_by_class_average_to_the_gain_of_the_domain():
    found = scores_of(grid(ALL))
    gains = tables.class_gains(found["SIB-Rot", 0], found["SIB-Rot", 3])
    expected = [tables.gain(found["SIB-Rot", 0][t], found["SIB-Rot", 3][t]).mean for t in DOMAINS]
    assert np.allclose(gains.mean(axis=1), expected)  # all classes have as many images


def test_the_notebook_asks_for_source_only_and_for_each_number_of_steps():
    p = StagesNotebook(K=[0, 3], targets="photo", seeds=2)
    assert [(e.network, e.K) for e in p.experiments() if e.seed == 0] == [("source-only", 0), ("Rot", 0), ("Rot", 3)]
    assert p.one_stage() == []
    networks = p.networks_of()
    assert (
        len({FINE_TUNED.id(one) for one in networks})
        == len(networks)
        == len(plan.TWO_SOURCES) + len(plan.THREE_SOURCES)
    )


def test_the_papers_profile_is_its_protocol_in_two_stages_and_in_one(monkeypatch):
    monkeypatch.delenv("SIB_HOME")
    p = StagesNotebook(**of_profile("paper", "05_pacs_adaptation"))
    assert {(one.backbone, one.size, one.steps) for one in p.networks_of()} == {("resnet18", 222, 4500)}
    jointly = p.one_stage()
    assert {(one.backbone, one.size, one.steps, one.features) for one in jointly} == {("resnet18", 222, 4500, "all")}
    assert {(one.method, one.K) for one in jointly} == {
        *(("source-only", 0), ("Rot", 0), ("SIB", 3)),
        *(("SIB-Rot", K) for K in (0, 1, 3, 5)),
    }


def test_the_papers_accuracies_are_below_ours_in_the_table_to_read():
    read = tables.with_paper(scores_of(grid(ALL)))
    assert [*read.loc["ours"].index] == ["source-only", "SIB-Rot, K = 0", "SIB-Rot, K = 3"]
    assert read.loc[("paper", "SIB-Rot, K = 3"), "average"] == "89.6"
    assert [*read.columns] == [*DOMAINS, "average"]


def test_runs_of_one_notebook_are_averaged_by_method_and_target():
    right = {("source-only", 0): 50.0, ("Rot", 0): 60.0, ("SIB", 3): 70.0}
    one_stage = grid({("SIB-Rot", 3): 80.0}, features="all")
    means = tables.this_run([*stages(right), *one_stage])
    assert [*means.index] == ["source-only", "Rot", "SIB, K = 3", "SIB-Rot, K = 3"]
    assert [*means["average"]] == pytest.approx([50, 60, 70, 80])
    assert [*means.loc["SIB, K = 3", [*DOMAINS]]] == pytest.approx([70] * 4)


def test_a_difference_counts_where_its_interval_does_not_reach_zero():
    rows = [("a", "b", 2.0, 1.0), ("b", "a", -2.0, 1.0), ("a", "c", 0.5, 1.0)]
    columns = ["before", "after", "gain", "ci95"]
    sentences = tables.sentences(pd.DataFrame(rows, columns=columns).assign(target="average"))
    assert sentences == ["a → b: a gain", "b → a: a loss", "a → c: no significant difference"]


def test_gains_at_test_time_are_over_the_classifier_of_the_same_network():
    publish.add(SECOND_STAGE, stages({("source-only", 0): 50.0, ("Rot", 0): 60.0, ("SIB", 3): 65.0}))
    changed = {"set-aware ξ, source-only network": 57.0, "equivariant ξ": 58.0}
    for name, accuracy in changed.items():
        planned = flat(plan.other_stages(name))
        same = {p: record(accuracy, target=p.target, seed=p.seed) for p in planned}
        publish.add(SECOND_STAGE, [made_up.record(SECOND_STAGE, p, r.metrics, r.arrays) for p, r in same.items()])
    found = {name: of["average"].mean for name, of in tables.gains_at_test_time().items()}
    expected = {"SIB, set-aware ξ, source-only network": 7, "SIB, set-aware ξ, K = 3": 5, "SIB, equivariant ξ": -2}
    assert found == {name: pytest.approx(gain, abs=0.5) for name, gain in expected.items()}
    assert [*found] == [*expected], "the largest gain first"


@pytest.mark.thorough
def test_tables_of_choices_come_from_the_published_runs(monkeypatch):
    monkeypatch.delenv("SIB_HOME")
    bank = banks.load()
    chosen = tables.chosen_variants(bank)
    better, plain = (chosen[name] for name in chosen.columns[-2:])
    assert [*chosen.index] == [*DOMAINS]
    assert (better >= plain).all(), "the sources choose the best of all"
    gains = tables.validation_gains(bank)
    assert gains.shape == (len(DOMAINS), len(TASKS) * len(ETAS))
    assert gains.notna().all().all()
    rates = tables.rotation_rates()
    assert rates["runs that choose it"].sum() == len(DOMAINS) * plan.PER_FIRST * len(plan.FIRST_SEEDS)
    search = tables.first_stage_search()
    assert search.loc["size = 128"].gt(search.loc["size = 64"]).all()
    assert set(tables.one_stage().index.get_level_values(0)) == {*plan.ONE_STAGE}


@pytest.mark.thorough
def test_all_figures_are_drawn():
    found = scores_of(grid({("Rot", 0): 61.0, ("SIB", 3): 70.0}))
    scores = tables.scores(found["SIB", 3])
    made = [
        figures.accuracy_over_steps(found),
        figures.ingredients({"a": scores, "b": scores}),
        figures.methods_at_test_time({"SIB": tables.gains(found["Rot", 0], found["SIB", 3])}),
        figures.gain_by_class(found),
        figures.gain_by_accuracy(found),
        figures.minibatch_sizes(found),
    ]
    assert [len(figure.axes) for figure in made] == [5, 1, 1, 1, 1, 4]


def test_sample_images_are_drawn_where_there_are_any(monkeypatch):
    monkeypatch.setattr(figures.pacs, "samples", mock.Mock(side_effect=FileNotFoundError))
    assert figures.sample_images() is None
    images = {(domain, name): np.zeros((4, 4, 3)) for domain in DOMAINS for name in CLASSES}
    monkeypatch.setattr(figures.pacs, "samples", lambda: images)
    assert len(figures.sample_images().axes) == len(images)
