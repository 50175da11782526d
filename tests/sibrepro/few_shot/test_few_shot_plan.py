"""Gathering and scoring, on made-up records."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from few_shot_records import FULL, QUICK, baseline, realism, sib
from sibrepro.few_shot.results import FewShotNotebook, gather

from sibrepro.facts import runs
from sibrepro.few_shot import results as few_shot_results
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import FewShot


@pytest.fixture(autouse=True)
def no_committed_records(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))


def test_the_notebook_asks_for_every_combination_of_shots_K_and_seeds():
    p = FewShotNotebook(shots=[1, 5], K=[0, 3], seeds=2, seed=4, steps=10)
    found = {(e.seed, e.shots, e.K) for e in p.experiments()}
    assert found == {(seed, shots, K) for seed in (4, 5) for shots in (1, 5) for K in (0, 3)}
    assert all((e.steps, e.features, e.eta) == (10, "images", 1e-3) for e in p.experiments())
    assert {(b.method, b.shots) for b in p.baselines()} >= {("pt-map", 1), ("pt-map", 5)}


def test_shipped_features_are_asked_for_only_where_they_are():
    p = FewShotNotebook(datasets=["cifar-fs", "mini-imagenet"], backbones=["conv4-64", "wrn-28-10"])
    assert {e.features for e in p.experiments()} == {"images"}, "nothing comes with an empty home"
    place = shipped.file("cifar-fs", "conv4-64")
    place.parent.mkdir(parents=True)
    place.touch()
    found = {(e.dataset, e.backbone): e.features for e in p.experiments()}
    assert [key for key, value in found.items() if value == "shipped"] == [("cifar-fs", "conv4-64")]
    assert len(found) == 4


def test_variants_change_one_thing_each():
    base = dataclasses.replace(FewShotNotebook().experiments()[0], shots=1, K=3)
    for p in FewShotNotebook().variant_experiments():
        changed = {name for name, value in runs.as_dict(p).items() if value != runs.as_dict(base)[name]}
        assert len(changed - {"shots"}) == 1


def test_the_fullest_runs_are_gathered_seed_by_seed():
    sib(60, QUICK)
    first, second = sib(61, seed=0), sib(62, seed=1)
    sib(99, backbone="conv4-128")
    other = sib(64, normalise="none")
    inductive = sib(59, transductive=False)
    sib(10, eta=0.1)
    results = gather("cifar-fs", "conv4-64")
    assert [r.id for r in results.sib[1, 3]] == [first.id, second.id]
    assert [r.id for r in results.variants[1, 3, "SIB, normalise none"]] == [other.id]
    assert [r.id for r in results.inductive[1, 3]] == [inductive.id]
    assert len(results.records) == 2


def test_committed_runs_count_too_and_newer_ones_of_the_same_name_replace_them(tmp_path, monkeypatch):
    output = tmp_path / "output"
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "home"))
    old = sib(60)
    monkeypatch.setenv("SIB_OUTPUT", str(output))
    assert [r.folder for r in runs.published("few_shot")] == [old.folder]
    new = sib(65)
    assert [r.folder for r in runs.published("few_shot")] == [new.folder]
    assert runs.find("few_shot")[0].folder == new.folder


def test_gain_is_paired_and_score_has_all_seeds():
    before, after = [sib(60, K=0, seed=s) for s in (0, 1)], [sib(70, K=3, seed=s) for s in (0, 1)]
    gain = few_shot_results.gain(before, after)
    differences = [after[s].arrays["best/1shot"].astype(float) - before[s].arrays["best/1shot"] for s in (0, 1)]
    assert gain.mean == pytest.approx(100 * np.mean(differences) / 75)
    score = few_shot_results.sib_score(after)
    assert score.mean == pytest.approx(np.mean([r.metrics["best/1shot"] for r in after]))


def test_names_and_profiles():
    plain = runs.as_dict(FULL)
    assert few_shot_results.sib_label(plain) == "SIB"
    assert few_shot_results.sib_label(plain | {"transductive": False}) == "inductive SIB"
    assert few_shot_results.sib_label(plain | {"equivariant": True, "alpha": 2.0}) == "SIB, equivariant ξ, alpha 2.0"
    assert few_shot_results.profile(plain) == "cpu"
    assert few_shot_results.profile(plain | {"steps": 2000}) == "quick"
    assert few_shot_results.profile(plain | {"backbone": "wrn-28-10"}) == "paper"
    assert not few_shot_results.is_plain(plain | {"lr": 0.1})
    assert few_shot_results.is_plain(plain | {"seed": 5, "K": 1, "eta": 0.1, "transductive": False})


def test_scores_for_the_studies():
    one = sib(71, K=3)
    sib(60, K=0), sib(68, normalise="running"), sib(69, equivariant=True), sib(67, epochs=12)
    realism(one)
    results = gather("cifar-fs", "conv4-64")
    assert set(few_shot_results.variant_scores(results, "normalise")) == {
        "SIB, K = 0",
        "SIB, K = 3",
        "SIB, normalise running",
    }
    orders = few_shot_results.order_scores(results)
    assert orders["averaged over ten orders"].mean == 70.2
    assert "SIB, equivariant ξ" in orders
    reasons = few_shot_results.reasons(results)
    assert reasons["paper, K = 3"].mean == 68.7
    assert {"ours, K = 3", "epochs 12, K = 3", "normalise running, K = 3"} <= set(reasons)
    assert not any("equivariant" in name for name in reasons)


def test_a_baseline_is_gathered_at_its_fullest():
    baseline(60, method="ridge", test_episodes=300)
    full = baseline(61, method="ridge")
    assert gather("cifar-fs", "conv4-64").baselines["ridge", 1].id == full.id


def test_every_option_of_an_experiment_is_plain_or_free():
    """A new option must be put into one of the two, or runs with it would pass for the paper's own."""
    assert set(few_shot_results.VARIABLES) < set(runs.as_dict(FewShot()))
