"""Experiments trained together leave the runs that they would leave alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from few_shot_tasks import stop_in_step
from tiny_images import few_shot_set, untrained_network

from sibrepro.facts.record import as_dict
from sibrepro.meta_training import training
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import blocks, few_shot, together, trained_sib

pytestmark = pytest.mark.thorough

SMALL = FewShot(dataset="noise", queries=5, steps=25, val_episodes=20, test_episodes=40)


def combinations(**values):
    """SMALL with every combination of these values."""
    settings = [SMALL]
    for name, several in values.items():
        settings = [dataclasses.replace(p, **{name: value}) for p in settings for value in several]
    return settings


def test_what_differs_in_K_eta_and_seed_shares_a_block():
    (block,) = blocks(combinations(K=[0, 3], eta=[0.1, 0.01], seed=[2, 1]))
    assert [[(p.seed, p.K, p.eta) for p in stream] for stream in block] == [
        [(seed, K, eta) for K in (0, 3) for eta in (0.01, 0.1)] for seed in (1, 2)
    ]


def test_other_differences_and_uneven_seeds_make_blocks_of_their_own():
    settings = [*combinations(shots=[1, 5], K=[1, 3]), dataclasses.replace(SMALL, K=3, seed=1)]
    found = blocks(settings)
    assert sorted([[(p.shots, p.K, p.seed) for p in stream] for stream in block] for block in found) == [
        [[(1, 1, 0), (1, 3, 0)]],
        [[(1, 3, 1)]],
        [[(5, 1, 0), (5, 3, 0)]],
    ]
    assert sum(len(stream) for block in found for stream in block) == len(settings)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Shared by the tests of this file, so that features are computed once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def world(cache, monkeypatch):
    """Images and a network."""
    monkeypatch.setenv("SIB_CACHE", str(cache))
    noisy = few_shot_set(8, 16, noise=0.5)
    return noisy, untrained_network(cache / "network.safetensors", noisy.images.shape[1])


def test_runs_are_those_of_single_trainings(world, cache, monkeypatch, tmp_path):
    settings = combinations(K=[0, 2], seed=[0, 1])
    several = together(settings, *world)
    assert [record.params for record in several] == [as_dict(p) for p in settings]
    assert not any(path.is_dir() for path in (cache / "stacks").glob("*")), "nothing is left of the stack"
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "alone"))
    for p, record in zip(settings, several, strict=True):
        alone = few_shot(p, *world)
        assert record.metrics["trained_together"] == 4
        assert "trained_together" not in alone.metrics
        assert record.id == alone.id
        assert alone.provenance["data"] == record.provenance["data"]
        for checkpoint in ("best", "last"):
            ours, theirs = (trained_sib(made, checkpoint).state_dict() for made in (record, alone))
            assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
        np.testing.assert_allclose(record.arrays["loss"], alone.arrays["loss"], rtol=1e-3)


def test_what_is_done_is_not_trained_again(world, monkeypatch):
    settings = combinations(K=[0, 1])
    first = together(settings, *world)
    monkeypatch.setattr(training, "training_tasks", None)  # without tasks there is no training
    assert [record.metrics for record in together(settings, *world)] == [record.metrics for record in first]


def test_what_is_missing_is_trained_and_the_order_is_that_asked_for(world):
    first, second, third = combinations(K=[2, 0, 1])
    (done,) = together([second], *world)
    found = together([first, second, third, first], *world)
    assert [record.params["K"] for record in found] == [2, 0, 1, 2]
    assert [record.metrics.get("trained_together") for record in found] == [2, None, 2, 2]
    assert found[1].provenance == done.provenance


def test_an_interrupted_block_goes_on_and_ends_in_the_same_numbers(world, monkeypatch, tmp_path):
    settings = [dataclasses.replace(p, steps=1100, batch=1) for p in combinations(K=[0, 1])]
    whole = together(settings, *world)
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "again"))
    begun = stop_in_step(1050, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        together(settings, *world)
    resumed = together(settings, *world)
    assert begun == [0, 1000, 1000], "it went on from the checkpoint after 1000 steps"
    assert [record.metrics for record in resumed] == [record.metrics for record in whole]


def test_a_kind_that_no_stack_has_is_trained_in_one_pass_too(world):
    settings = combinations(K=[1, 2], xi=["equivariant"])
    assert [record.metrics["trained_together"] for record in together(settings, *world)] == [2, 2]
