"""Runs of notebook 07 on made-up features, and its tables and figures from made-up records."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.vision.features import Features
from sibcore.xi import EquivariantXi, MLPXi, SetXi
from sibrepro.facts import Inputs
from sibrepro.rivals import BASELINES
from sibrepro.studies.equal_footing import experiment, figures, plan, tables
from sibrepro.studies.equal_footing.experiment import (
    PROBABILITIES,
    SHARES,
    MethodSettings,
    model_of,
    probe_sets,
    run_method,
)

SMALL = {"ways": 3, "queries": 4, "steps": 4, "batch": 2, "val_episodes": 6, "test_episodes": 10, "K": 2}


def bank(seed: int, classes: int = 6, each: int = 30) -> Features:
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    features = torch.randn(classes, 8, generator=g)[labels] + torch.randn(len(labels), 8, generator=g)
    names = tuple(f"class {c}" for c in range(classes))
    return Features(features.relu(), torch.empty(0, len(labels), 8), labels, names, "0")


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    banks = {split: bank(i) for i, split in enumerate(("train", "val", "test"))}
    monkeypatch.setattr(experiment, "banks_of", lambda p: Inputs({"made up": "0"}, lambda: banks))


@pytest.mark.parametrize("method", ["sib", "sib-equivariant", "sib-set", "soft-k-means"])
def test_a_run_has_both_kinds_of_queries_on_the_tasks_that_all_share(method):
    record = run_method(MethodSettings(method=method, **SMALL))
    for kind in ("balanced", "dirichlet2"):
        assert record.arrays[kind].shape == (10,)
        assert record.metrics[kind] == pytest.approx(100 * record.arrays[kind].mean() / 12)
    assert ("validation" in record.metrics) == ("options" not in record.metrics) == (method != "soft-k-means")
    assert ("xi" in record.arrays) == (method == "sib-set")


def test_a_method_that_learns_nothing_is_the_one_of_the_library():
    p = MethodSettings(method="nearest-centroid", **SMALL)
    sampler = EpisodeSampler(bank(2).labels, 3, 1, 4, 1_000_002, alpha=2.0)
    expected = evaluate(BASELINES["nearest-centroid"](3), bank(2).features, sampler.sample(0, 10))
    assert run_method(p).metrics["dirichlet2"] == pytest.approx(100 * expected.mean)


@pytest.mark.parametrize("method", ["sib-set", "nearest-centroid"])
def test_elsewhere_the_same_method_meets_tasks_of_other_shapes(method, monkeypatch):
    monkeypatch.setattr(experiment, "SHAPES", ((2, 3), (4, 1)))
    monkeypatch.setattr(experiment, "FEWER", 7)
    plain, record = (run_method(MethodSettings(method=method, elsewhere=more, **SMALL)) for more in (False, True))
    assert record.id != plain.id
    assert np.array_equal(record.arrays["balanced"], plain.arrays["balanced"])
    for (ways, queries), kind in itertools.product(experiment.SHAPES, ("balanced", "dirichlet2")):
        name = f"{ways}way/{queries}each/{kind}"
        assert record.arrays[name].shape == (7,)
        assert record.metrics[name] == pytest.approx(100 * record.arrays[name].mean() / (ways * queries))
    if method == "nearest-centroid":
        same = BASELINES[method](4, **plain.metrics["options"]["balanced"])
        drawn = EpisodeSampler(bank(2).labels, 4, 1, 1, 1_000_002)
        expected = evaluate(same, bank(2).features, drawn.sample(0, 7))
        assert record.metrics["4way/1each/balanced"] == pytest.approx(100 * expected.mean)


def test_an_unknown_method_is_named_and_nothing_is_left():
    with pytest.raises(ValueError, match="no method 'sibb': expected one of sib, sib-equivariant"):
        run_method(MethodSettings(method="sibb"))


def test_the_training_stream_is_balanced_unbalanced_or_both():
    labels = {}
    for kind in ("balanced", "dirichlet2", "mixture"):
        p = dataclasses.replace(MethodSettings(**SMALL), tasks=kind)
        drawn = experiment._sampler(p, bank(0), 0).sample(0, 20).query_labels
        labels[kind] = torch.stack([row.bincount(minlength=3) for row in drawn])
    assert labels["balanced"].unique().tolist() == [4]
    assert torch.equal(labels["mixture"][1::2], labels["dirichlet2"][1::2])
    assert labels["mixture"][::2].unique().tolist() == [4]


def test_probe_sets_are_what_they_say():
    p = probe_sets(5).softmax(-1).unflatten(0, (len(SHARES), len(PROBABILITIES)))
    assert torch.allclose(p[:, :, 0, 0], torch.tensor(PROBABILITIES).expand(len(SHARES), -1))
    of_first = (p[:, 0, 1:].argmax(-1) == 0).double().mean(-1)
    assert np.abs(of_first.numpy() - SHARES).max() < 1 / 74


def test_only_a_xi_that_sees_the_set_answers_to_the_share():
    alone, together = (experiment.response(kind(5, "none").double(), 5) for kind in (EquivariantXi, SetXi))
    assert np.ptp(alone, 0).max() < 1e-12
    assert np.ptp(together, 0).max() > 1e-3


def test_pushes_of_information_and_transport_point_to_equal_shares():
    for push in (experiment.implied_by_information(5), experiment.implied_by_transport(5)):
        assert (push[0] > 0).all()
        assert (push[-1] < 0).all()


def test_the_models_of_a_ladder_differ_in_xi_alone():
    kinds = {method: model_of(MethodSettings(method=method), 8) for method in experiment.SIBS}
    assert {m.steps for m in kinds.values()} == {5}
    first = {"sib": MLPXi, "sib-equivariant": EquivariantXi, "sib-set": SetXi}
    assert {method: type(kinds[method].xi) for method in first} == first


@pytest.mark.thorough
def test_tables_and_figures_of_made_up_runs():
    methods = ["sib-set", "sib", "nearest-centroid", "soft-k-means"]
    notebook = plan.EqualFootingNotebook(methods=methods, steps=4, val_episodes=6, test_episodes=10, seeds=2, K=1)
    runs = {}
    for p in notebook.runs():
        small = dataclasses.replace(p, ways=3, queries=4)
        tasks = "" if p.method in BASELINES else "mixture"
        runs.setdefault((p.method, tasks, 1), []).append(run_method(small))
    assert [len(records) for records in runs.values()] == [2, 2, 1, 1]
    table = tables.comparison(runs)
    assert list(table["kind"]) == ["sib"] * 4 + ["rival"] * 4
    by = table.set_index(["method", "queries"])["ours"]
    chosen = max(("sib-set", "sib"), key=lambda m: sum(r.metrics["validation"] for r in runs[m, "mixture", 1]))
    assert tables.best(runs, 1) == chosen
    assert tables.best(runs, 5) == ""
    assert tables.best({**runs, (chosen, "mixture", 1): runs[chosen, "mixture", 1][:1]}, 1) != chosen
    for row in tables.differences(runs, "sib-set").itertuples():
        assert row.gain == pytest.approx(by["SIB, set-aware ξ", row.queries] - by[row.method, row.queries])
    assert len(tables.accuracies_by_method(table)) == 4
    assert list(tables.this_run(runs["sib", "mixture", 1])["balanced"]) == [
        f"{r.metrics['balanced']:.2f} ± {r.metrics['balanced_ci95']:.2f} %" for r in runs["sib", "mixture", 1]
    ]
    for draw in (figures.accuracies, figures.speeds):
        assert [axis.get_title() for axis in draw(table).axes] == ["1-shot"]
    figures.pulls({"ξ": runs["sib-set", "mixture", 1][0].arrays["xi"]})


def test_rivals_are_ahead_whose_interval_lies_below_zero():
    rows = [("PT-MAP", -1.0, 0.5), ("TIM", -0.4, 0.5), ("MAML", 2.0, 0.1)]
    gains = pd.DataFrame([[name, 1, "dirichlet2", gain, ci95] for name, gain, ci95 in rows])
    gains.columns = ["method", "shots", "queries", "gain", "ci95"]
    assert tables.ahead(gains) == ["1-shot, Dirichlet(2) queries: better than the SIB: PT-MAP"]
    assert tables.ahead(gains[2:]) == ["1-shot, Dirichlet(2) queries: better than the SIB: none"]
    assert tables.gains_by_method(gains).loc["PT-MAP", ("1-shot", "Dirichlet(2)")] == "-1.00 ± 0.50"


def test_the_front_is_what_nothing_else_is_better_than_on_both_axes():
    x, y = pd.Series({"a": 1, "b": 2, "c": 3, "d": 1}), pd.Series({"a": 3, "b": 1, "c": 2, "d": 1})
    assert figures._front(x, y) == {"a", "c"}


def test_the_table_of_other_shapes_is_of_the_records_answers(monkeypatch):
    monkeypatch.setattr(experiment, "SHAPES", ((2, 3), (4, 1)))
    monkeypatch.setattr(tables, "SHAPES", experiment.SHAPES)
    found = {
        (method, tasks, 1): [run_method(MethodSettings(method=method, elsewhere=True, **SMALL))]
        for method, tasks in (("sib-set", "mixture"), ("soft-k-means", ""))
    }
    (best,), (rival,) = found.values()
    table = tables.shapes(found)
    assert len(table) == 2 * 2 * 2
    for row in table[table["method"] == "Soft k-means"].itertuples():
        name = f"{row.ways}way/{row.queries_each}each/{row.queries}"
        assert row.ours == pytest.approx(rival.metrics[name])
        assert row.gain == pytest.approx(best.metrics[name] - rival.metrics[name])


def test_tasks_of_other_shapes_reach_from_two_to_twenty_ways_and_from_five_to_three_hundred_queries():
    ways, queries = zip(*((ways, ways * each) for ways, each in experiment.SHAPES), strict=True)
    assert (min(ways), max(ways), min(queries), max(queries)) == (2, 20, 5, 300)
    assert all(p.elsewhere for several in plan.elsewhere().values() for p in several)


def test_the_confirmation_has_the_chosen_settings_on_other_images():
    for key, several in plan.confirmation().items():
        for ours, chosen in zip(several, plan.plan()[key], strict=True):
            assert (ours.dataset, ours.features) == ("mini-imagenet", "images")
            assert dataclasses.replace(ours, dataset=chosen.dataset, features=chosen.features) == chosen


@pytest.mark.thorough
def test_seeds_that_only_one_of_two_methods_has_are_left_out():
    runs = {
        method: [run_method(MethodSettings(method=method, seed=seed, **SMALL)) for seed in range(3)]
        for method in ("sib", "maml")
    }
    gap = tables.differences({("sib", "mixture", 1): runs["sib"], ("maml", "mixture", 1): runs["maml"][:2]})
    ours, theirs = (np.mean([r.metrics["balanced"] for r in runs[method][:2]]) for method in ("sib", "maml"))
    assert gap.set_index("queries")["gain"]["balanced"] == pytest.approx(ours - theirs)


def test_the_plan_has_every_method_once_for_each_number_of_shots():
    planned = plan.plan()
    assert {key[0] for key in planned} == experiment.SIBS.keys() | experiment.HEADS.keys() | experiment.UNTRAINED.keys()
    ids = [experiment.METHOD_COMPARISON.id(p) for several in planned.values() for p in several]
    assert len(ids) == len(set(ids))
