"""Experiments trained together leave the records that they would leave alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tiny_images import untrained_network

from sibcore import datasets
from sibcore import train as meta
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import together as many
from sibrepro.few_shot.experiment import FewShot

SMALL = FewShot(dataset="glyphs", queries=5, steps=25, val_episodes=20, test_episodes=40)


def variants(**lists):
    """SMALL with every combination of these values."""
    settings = [SMALL]
    for name, values in lists.items():
        settings = [dataclasses.replace(p, **{name: value}) for p in settings for value in values]
    return settings


def test_what_differs_in_K_eta_and_seed_shares_a_block():
    (block,) = many.blocks(variants(K=[0, 3], eta=[0.1, 0.01], seed=[2, 1]))
    assert [[(p.seed, p.K, p.eta) for p in stream] for stream in block] == [
        [(seed, K, eta) for K in (0, 3) for eta in (0.01, 0.1)] for seed in (1, 2)
    ]


def test_other_differences_and_uneven_seeds_make_blocks_of_their_own():
    settings = [*variants(shots=[1, 5], K=[1, 3]), dataclasses.replace(SMALL, K=3, seed=1)]
    found = many.blocks(settings)
    assert sorted([[(p.shots, p.K, p.seed) for p in stream] for stream in block] for block in found) == [
        [[(1, 1, 0), (1, 3, 0)]],
        [[(1, 3, 1)]],
        [[(5, 1, 0), (5, 3, 0)]],
    ]
    assert sum(len(stream) for block in found for stream in block) == len(settings)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    glyphs = datasets.load("glyphs", per_class=16)
    network = untrained_network(tmp_path / "network.safetensors", glyphs.images.shape[1])
    return glyphs, network


def test_records_are_those_of_single_runs(world, monkeypatch, tmp_path):
    settings = variants(K=[0, 2], seed=[0, 1])
    together = many.few_shot(settings, *world)
    assert [record.params for record in together] == [runs.as_dict(p) for p in settings]
    assert not list((tmp_path / "cache" / "stacks").iterdir()), "nothing is left of the stack"
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "alone"))
    for p, record in zip(settings, together, strict=True):
        alone = few_shot.few_shot(p, *world)
        assert record.metrics["trained_together"] == 4
        assert alone.provenance["data"] == record.provenance["data"]
        for file in few_shot.CHECKPOINTS.values():
            ours, theirs = (meta.load_sib(r.folder / file)[0].state_dict() for r in (record, alone))
            assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
        np.testing.assert_allclose(record.arrays["loss"], alone.arrays["loss"], rtol=1e-3)


def test_what_is_done_is_not_trained_again(world, monkeypatch):
    settings = variants(K=[0, 1])
    first = many.few_shot(settings, *world)
    monkeypatch.setattr(many.stacked, "train", None)
    assert [record.metrics for record in many.few_shot(settings, *world)] == [record.metrics for record in first]


def test_a_kind_that_no_stack_has_is_trained_alone(world):
    settings = variants(K=[1, 2], equivariant=[True])
    assert all("trained_together" not in record.metrics for record in many.few_shot(settings, *world))
