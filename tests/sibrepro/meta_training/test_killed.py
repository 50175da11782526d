"""What was finished is not lost, wherever a process is killed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from few_shot_tasks import stop_in_step
from killing import killed_at_write
from tiny_images import few_shot_set, tiny_set, untrained_network

from sibcore import train
from sibcore.datasets.base import cache_folder
from sibcore.vision import pretrain
from sibcore.vision.backbones import load_network
from sibrepro.meta_training.pretraining import pretrained
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot, together

pytestmark = pytest.mark.thorough

SMALL = FewShot(dataset="noise", queries=5, steps=4, batch=2, val_episodes=5, test_episodes=5)
PAIR = [dataclasses.replace(SMALL, K=K) for K in (0, 1)]
# The writes of a block of two: its list; `best` and `last` of both; then of each run its code and what else it is made
# of, its copies of these two, its parameters, provenance, metrics and arrays, and `done`.
LIST, TRAINED, FIRST_DONE, LAST_DONE = 1, 5, 14, 23


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path))
    data = few_shot_set()
    return data, untrained_network(tmp_path / "network.safetensors", data.images.shape[1])


def test_a_block_killed_while_runs_are_written_keeps_its_trainings_and_ends_in_the_same_numbers(
    world, monkeypatch, tmp_path
):
    whole, begun = together(PAIR, *world), stop_in_step(10**9, monkeypatch)
    for number in (LIST, TRAINED, TRAINED + 1, FIRST_DONE, FIRST_DONE + 1, LAST_DONE):
        monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / f"killed {number}"))
        assert killed_at_write(number, lambda: together(PAIR, *world))
        begun.clear()
        again = together(PAIR, *world)
        assert begun == ([] if number > TRAINED else [0]), f"killed at write {number}"
        for one, other in zip(whole, again, strict=True):
            assert one.metrics == other.metrics
            np.testing.assert_array_equal(one.arrays["loss"], other.arrays["loss"])
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "not killed"))
    assert not killed_at_write(LAST_DONE + 1, lambda: together(PAIR, *world)), "there are no more writes"
    assert not any(path.is_dir() for path in (cache_folder() / "stacks").glob("*"))


def test_a_stopped_block_of_other_features_is_left_alone(world):
    assert killed_at_write(FIRST_DONE + 1, lambda: together(PAIR, *world))
    assert "trained_together" not in together(PAIR[1:], few_shot_set(images=13), world[1])[0].metrics
    assert list((cache_folder() / "stacks").glob("*/block.json"))


def test_a_run_killed_while_it_takes_over_its_training_can_be_computed_alone(world):
    assert killed_at_write(TRAINED + 4, lambda: together(PAIR, *world))
    assert few_shot(PAIR[0], *world).metrics.keys() >= {"best/1shot", "last/1shot"}


def test_the_time_of_a_training_that_was_finished_before_the_kill_is_kept(world, monkeypatch):
    assert killed_at_write(TRAINED + 1, lambda: together(PAIR, *world))
    monkeypatch.setattr(train, "seconds", lambda history: 1000.0)
    assert all(500 <= record.provenance["wall_seconds"] < 600 for record in together(PAIR, *world))


def test_the_seconds_of_a_history_are_those_of_its_steps():
    rows = [{"step": 10, "steps_per_second": 5.0}, {"step": 40, "steps_per_second": 10.0}]
    assert train.seconds(rows) == pytest.approx(2 + 3)


def test_a_finished_pretraining_killed_while_its_run_is_written_is_not_trained_again(monkeypatch, tmp_path):
    data, recipe = tiny_set(), {"epochs": 1, "batch": 64, "episodes": 2}
    epochs, train_epoch = [], pretrain.train_epoch

    def counted(*arguments):
        epochs.append(arguments[5])
        return train_epoch(*arguments)

    monkeypatch.setattr(pretrain, "train_epoch", counted)
    whole = pretrained(data, **recipe)
    assert not whole.files.path(pretrain.CHECKPOINT).exists(), "it goes when the run is done"
    for number in (4, 9):  # the checkpoint, after what the run is made of and the network; and `done`
        monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / f"killed {number}"))
        assert killed_at_write(number, lambda: pretrained(data, **recipe))
        epochs.clear()
        again = pretrained(data, **recipe)
        assert epochs == ([] if number > 4 else [0]), f"killed at write {number}"
        first, second = (load_network(r.files.path(pretrain.BACKBONE))[0].state_dict() for r in (whole, again))
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert not again.files.path(pretrain.CHECKPOINT).exists()
