"""From pixels to a run, on noise: small, but all of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from few_shot_tasks import stop_in_step
from tiny_images import few_shot_set
from torch.nn import functional as F

from sibcore import datasets
from sibcore.files import sha256
from sibcore.vision.features import Features, feature_bank
from sibrepro import __main__
from sibrepro.facts import Inputs, local, publish
from sibrepro.meta_training import banks, pretraining, training
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT, few_shot, trained_sib

pytestmark = pytest.mark.thorough

SMALL = FewShot(dataset="noise", K=1, queries=5, steps=30, val_episodes=20, test_episodes=40)


@pytest.fixture(scope="module")
def noisy():
    return few_shot_set(8, 16, noise=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared by the tests of this file, so that the network is trained and its features are computed once."""
    return tmp_path_factory.mktemp("few_shot")


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def pretrainings(noisy, folder):
    """The runs of two networks, pretrained for one epoch from different seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIB_OUTPUT", str(folder))
        return [pretraining.pretrained(noisy, epochs=1, batch=128, episodes=10, seed=seed) for seed in (0, 1)]


@pytest.fixture
def networks(pretrainings):
    return [record.files.path("backbone.safetensors") for record in pretrainings]


@pytest.fixture
def network(networks):
    return networks[0]


def test_pretraining_leaves_the_network_and_no_checkpoint(pretrainings, network):
    assert network.is_file()
    assert not (network.parent / "checkpoint.safetensors").exists()
    assert pretrainings[0].metrics["best_epoch"] == 1
    assert pretrainings[0].metrics["validation"] > 25, "chance is 20"


def test_an_experiment_leaves_its_accuracies_its_trained_models_and_its_hashes(noisy, network):
    record = few_shot(SMALL, noisy, network)
    files = {path.name for path in local.folder_of(FEW_SHOT.id(SMALL)).iterdir()}
    assert {"best.safetensors", "last.safetensors", "done"} <= files
    assert record.provenance["data"] == {"noise": noisy.sha256, "network": sha256(network)}
    for name in ("best", "last"):
        for shots in (1, 5):
            right = record.arrays[f"{name}/{shots}shot"]
            assert right.shape == (40,)
            assert record.metrics[f"{name}/{shots}shot"] == pytest.approx(100 * right.mean() / 25)
            assert record.metrics[f"{name}/{shots}shot_ci95"] == pytest.approx(100 * 1.96 * right.std() / 25 / 40**0.5)
            assert record.metrics[f"{name}/{shots}shot"] > 30, "chance is 20"


@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_the_stored_model_gives_the_stored_answers(noisy, network, checkpoint):
    record = few_shot(SMALL, noisy, network)
    bank = feature_bank(network, noisy, "test")
    tasks = banks.tasks(SMALL, bank, "test")
    sib = trained_sib(record, checkpoint)
    with torch.no_grad():
        answers = sib(bank.features[tasks.support], tasks.support_labels, bank.features[tasks.query]).argmax(-1)
    right = (answers == tasks.query_labels).sum(1)
    np.testing.assert_array_equal(right.numpy(), record.arrays[f"{checkpoint}/1shot"])


def test_a_published_training_has_the_model_of_the_one_made_here(noisy, network, tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    p = dataclasses.replace(SMALL, steps=3)
    here = few_shot(p, noisy, network)
    assert FEW_SHOT.published(p) is None
    publish.add(FEW_SHOT, [here])
    found = FEW_SHOT.published(p)
    assert found.metrics == here.metrics
    assert found.files.checkpoint_hash("best") == sha256(local.folder_of(here.id) / "best.safetensors")
    ours, theirs = (trained_sib(record).state_dict() for record in (here, found))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with pytest.raises(FileNotFoundError, match="'last' is not published; compute the run here"):
        trained_sib(found, "last")


def test_an_interrupted_experiment_goes_on_and_ends_in_the_same_numbers(noisy, network, tmp_path, monkeypatch):
    p = dataclasses.replace(SMALL, steps=1100, batch=2)
    whole = few_shot(p, noisy, network)
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "again"))
    begun = stop_in_step(1050, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        few_shot(p, noisy, network)
    assert not FEW_SHOT.is_done(p, Inputs(whole.provenance["data"], dict))
    resumed = few_shot(p, noisy, network)
    assert begun == [0, 1000, 1000], "it went on from the checkpoint after 1000 steps"
    assert resumed.metrics == whole.metrics
    ours, theirs = (trained_sib(record, "last").state_dict() for record in (resumed, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_tasks_of_validation_and_test_do_not_depend_on_what_is_trained(noisy, network):
    bank = feature_bank(network, noisy, "test")
    other = dataclasses.replace(SMALL, K=5, seed=3, eta=0.1)
    assert torch.equal(banks.tasks(SMALL, bank, "test").query, banks.tasks(other, bank, "test").query)


def test_the_network_is_part_of_what_makes_a_run_valid(noisy, networks):
    first, other = (few_shot(SMALL, noisy, network) for network in networks)
    assert first.id == other.id
    assert [record.provenance["data"]["network"] for record in (first, other)] == [sha256(file) for file in networks]
    assert first.metrics != other.metrics
    assert FEW_SHOT.is_done(SMALL, Inputs(other.provenance["data"], dict))
    assert not FEW_SHOT.is_done(SMALL, Inputs(first.provenance["data"], dict))


def test_the_command_runs_each_setting_and_says_what_it_found(noisy, pretrainings, monkeypatch, capsys):
    monkeypatch.setattr(datasets, "load", lambda name, source: noisy)
    monkeypatch.setattr(pretraining, "pretrained", lambda data, backbone: pretrainings[0])
    command = ["few-shot", "--data", "noise", "--shots", "1", "2", "--K", "0", "--steps", "5"]
    assert __main__.main(command) == 2, "16 pictures a class are too few for 2 shots and 15 queries"
    said = capsys.readouterr()
    assert "1-shot K=0 seed=0: best checkpoint" in said.out
    assert "lower shots or queries" in said.err


def test_a_second_number_of_shots_is_left_out_where_classes_are_too_small(noisy, network):
    record = few_shot(dataclasses.replace(SMALL, queries=12, steps=3), noisy, network)
    assert "last/1shot" in record.metrics
    assert "last/5shot" not in record.metrics, "16 pictures a class are too few for 5 shots and 12 queries"


def test_options_reach_the_model_and_its_schedule():
    plain = training.untrained(FewShot(), 8)
    assert (plain.reduction, plain.xi.normalise, training.schedule(FewShot()).momentum) == ("sum", "task", 0.9)
    p = FewShot(reduction="mean", normalise="running", optimiser="paper", K=2, eta=0.5, seed=3)
    model = training.untrained(p, 8)
    assert (model.reduction, model.xi.normalise, model.steps, model.eta) == ("mean", "running", 2, 0.5)
    assert training.schedule(p).momentum == 0
    assert training.untrained(FewShot(xi="equivariant"), 8).setup["xi"] == "equivariant"


def test_unbalanced_training_tasks_when_asked_for():
    labels = torch.arange(10).repeat_interleave(100)
    bank = Features(torch.zeros(1000, 2), torch.zeros(0, 1000, 2), labels, tuple("abcdefghij"), "")
    balanced, spread = (training.training_tasks(FewShot(alpha=alpha), bank).sample(0, 9) for alpha in (0.0, 2.0))
    counts = [F.one_hot(tasks.query_labels, 5).sum(1) for tasks in (balanced, spread)]
    assert (counts[0] == 15).all()
    assert (counts[1] != 15).any()
    assert (counts[1].sum(1) == 75).all()


def test_augmented_views_are_drawn_from_when_asked_for(noisy, network):
    record = few_shot(dataclasses.replace(SMALL, views=2), noisy, network)
    assert record.params["views"] == 2
    assert record.metrics["last/1shot"] > 30
