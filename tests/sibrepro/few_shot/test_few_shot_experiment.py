"""From pixels to a run record, on procedural images: small, but all of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sibcore import datasets
from sibcore import train as meta
from sibcore.vision.features import Features, feature_bank
from sibrepro import __main__, paths
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot.experiment import FewShot

SMALL = FewShot(dataset="glyphs", K=1, queries=5, steps=30, val_episodes=20, test_episodes=40)


@pytest.fixture(scope="module")
def glyphs():
    return datasets.load("glyphs", per_class=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared by the tests of this file, so that the network is trained and its features are computed once."""
    return tmp_path_factory.mktemp("few_shot")


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def networks(glyphs, folder):
    """Two networks, pretrained for one epoch from different seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIB_OUTPUT", str(folder))
        records = [few_shot.pretrained(glyphs, epochs=1, batch=128, episodes=10, seed=seed) for seed in (0, 1)]
    return [record.folder / "backbone.safetensors" for record in records]


@pytest.fixture
def network(networks):
    return networks[0]


def test_pretraining_leaves_the_network_and_no_checkpoint(network):
    record = runs.load(network.parent)
    assert not (network.parent / "checkpoint.safetensors").exists()
    assert record.metrics["best_epoch"] == 1
    assert record.metrics["validation"] > 25, "chance is 20"


def test_an_experiment_leaves_its_accuracies_its_trained_models_and_its_hashes(glyphs, network):
    record = few_shot.few_shot(SMALL, glyphs, network)
    assert {"best.safetensors", "last.safetensors", "done"} <= {path.name for path in record.folder.iterdir()}
    assert set(record.provenance["data"]) == {"glyphs", "network"}
    for name in ("best", "last"):
        for shots in (1, 5):
            right = record.arrays[f"{name}/{shots}shot"]
            assert right.shape == (40,)
            assert record.metrics[f"{name}/{shots}shot"] == pytest.approx(100 * right.mean() / 25)
            assert record.metrics[f"{name}/{shots}shot_ci95"] == pytest.approx(100 * 1.96 * right.std() / 25 / 40**0.5)
            assert record.metrics[f"{name}/{shots}shot"] > 30, "chance is 20"


def test_the_stored_model_gives_the_stored_answers(glyphs, network):
    record = few_shot.few_shot(SMALL, glyphs, network)
    bank = feature_bank(network, glyphs, "test")
    sib, _ = meta.load_sib(record.folder / "last.safetensors")
    tasks = few_shot.tasks(SMALL, bank, "test")
    support, query = bank.features[tasks.support], bank.features[tasks.query]
    with torch.no_grad():
        answers = sib(support, tasks.support_labels, query).argmax(-1)
    np.testing.assert_array_equal((answers == tasks.query_labels).sum(1).numpy(), record.arrays["last/1shot"])


def test_an_interrupted_experiment_goes_on_and_ends_in_the_same_numbers(glyphs, network, monkeypatch):
    p = dataclasses.replace(SMALL, steps=2500)
    whole = few_shot.few_shot(p, glyphs, network)
    monkeypatch.setenv("SIB_OUTPUT", str(paths.output().parent / "again"))
    saved, calls = meta._save, []

    def stop_after_the_first(*arguments):
        saved(*arguments)
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(meta, "_save", stop_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        few_shot.few_shot(p, glyphs, network)
    resumed = few_shot.few_shot(p, glyphs, network)
    assert len(calls) == 3, "one checkpoint before the stop and two after it"
    assert resumed.metrics == whole.metrics


def test_tasks_of_validation_and_test_do_not_depend_on_what_is_trained(glyphs, network):
    bank = feature_bank(network, glyphs, "test")
    other = dataclasses.replace(SMALL, K=5, seed=3, eta=0.1)
    assert torch.equal(few_shot.tasks(SMALL, bank, "test").query, few_shot.tasks(other, bank, "test").query)


def test_the_network_is_part_of_what_makes_a_record_valid(glyphs, networks):
    network, other = networks
    few_shot.few_shot(SMALL, glyphs, network)
    record = runs.run_id("few_shot", SMALL)
    before = runs.load(paths.results() / "runs" / record).provenance["data"]["network"]
    few_shot.few_shot(SMALL, glyphs, other)
    assert runs.load(paths.results() / "runs" / record).provenance["data"]["network"] != before


def test_the_command_runs_each_setting_and_says_what_it_found(glyphs, networks, monkeypatch, capsys):
    monkeypatch.setattr(datasets, "load", lambda name, source: glyphs)
    monkeypatch.setattr(few_shot, "pretrained", lambda data, backbone: runs.load(networks[0].parent))
    command = ["few-shot", "--data", "glyphs", "--shots", "1", "2", "--K", "0", "--steps", "5"]
    assert __main__.main(command) == 2, "16 pictures a class are too few for 2 shots and 15 queries"
    said = capsys.readouterr()
    assert "1-shot K=0 seed=0: best checkpoint" in said.out
    assert "lower shots or queries" in said.err


def test_a_second_number_of_shots_is_left_out_where_classes_are_too_small(glyphs, network):
    record = few_shot.few_shot(dataclasses.replace(SMALL, queries=12, steps=3), glyphs, network)
    assert "last/1shot" in record.metrics
    assert "last/5shot" not in record.metrics, "16 pictures a class are too few for 5 shots and 12 queries"


def test_options_reach_the_model_and_its_schedule():
    plain = few_shot.untrained(FewShot(), 8)
    assert (plain.reduction, plain.xi.normalise, few_shot.schedule(FewShot()).momentum) == ("sum", "task", 0.9)
    p = FewShot(reduction="mean", normalise="running", optimiser="paper", K=2, eta=0.5, seed=3)
    model = few_shot.untrained(p, 8)
    assert (model.reduction, model.xi.normalise, model.steps, model.eta) == ("mean", "running", 2, 0.5)
    assert few_shot.schedule(p).momentum == 0
    assert few_shot.untrained(FewShot(equivariant=True), 8).setup["equivariant"]


def test_unbalanced_training_tasks_when_asked_for():
    labels = torch.arange(10).repeat_interleave(100)
    bank = Features(torch.zeros(1000, 2), torch.zeros(0, 1000, 2), labels, tuple("abcdefghij"), "")
    balanced, spread = (few_shot.training_tasks(FewShot(alpha=alpha), bank).sample(0, 9) for alpha in (0.0, 2.0))
    counts = [F.one_hot(tasks.query_labels, 5).sum(1) for tasks in (balanced, spread)]
    assert (counts[0] == 15).all()
    assert (counts[1] != 15).any()
    assert (counts[1].sum(1) == 75).all()


def test_augmented_views_are_drawn_from_when_asked_for(glyphs, network):
    record = few_shot.few_shot(dataclasses.replace(SMALL, views=2), glyphs, network)
    assert record.params["views"] == 2
    assert record.metrics["last/1shot"] > 30
