"""Scores and the table from made-up records."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from adaptation_records import IMAGES, grid, record, scores_of
from cells import drawn
from scipy import stats
from sklearn.metrics import confusion_matrix

from sibcore.datasets.pacs import DOMAINS
from sibrepro import paper
from sibrepro.facts import publish
from sibrepro.params import of_profile
from sibrepro.studies.pacs import figures, plan, tables
from sibrepro.studies.pacs.experiment import ADAPTATION, Adaptation
from sibrepro.studies.pacs.first_stage import FINE_TUNED
from sibrepro.studies.pacs.plan import StagesNotebook
from sibrepro.studies.pacs.second_stage import SECOND_STAGE

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
    kinds = [(settings, key, count) for settings, counts in plan.PUBLISHED.values() for key, count in counts.items()]
    for settings, (method, K), count in kinds:
        of_kind = Adaptation(method=method, K=K, **settings)
        found = [p for p in declared[ADAPTATION] if dataclasses.replace(p, target=of_kind.target, seed=0) == of_kind]
        assert Counter(p.target for p in found) == dict.fromkeys(DOMAINS, count)
    assert len(declared[ADAPTATION]) == len(DOMAINS) * sum(count for *_, count in kinds)
    assert {*plan.SEARCH, *plan.PAIRS, *plan.TRIPLES} == set(declared[FINE_TUNED])
    for changes in (*plan.STAGES.values(), *plan.OTHERS.values()):
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
    assert len({FINE_TUNED.id(one) for one in networks}) == len(networks) == len(plan.PAIRS) + len(plan.TRIPLES)


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


@pytest.mark.thorough
def test_all_figures_are_drawn():
    found = scores_of(grid({("Rot", 0): 61.0, ("SIB", 3): 70.0}))
    first, last = ("Rot", 0), ("SIB", 3)
    scores = tables.scores(found[last])
    gained = tables.class_gains(found[first], found[last]).rename(index=figures.NAMES)
    made = [
        figures.accuracy_by_domain(found),
        figures.ladder({"a": scores, "b": scores}),
        figures.beside({"SIB": tables.gains(found[first], found[last])}, "Rot"),
        drawn("05_gain_by_class", main=found),
        drawn("05_gain_by_accuracy", main=found, gained=gained, first=first, last=last),
        drawn("05_minibatches", main=found, first=first, last=last),
    ]
    assert [len(figure.axes) for figure in made] == [1, 1, 1, 2, 1, 4]
