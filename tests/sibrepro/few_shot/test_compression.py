"""The effect of compression, measured on a small set whose features are shipped for the test."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny_images import untrained_network

from sibcore import datasets
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import shipped
from sibrepro.few_shot.compression import compression
from sibrepro.few_shot.experiment import FewShot


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    glyphs = datasets.load("glyphs", per_class=16)
    network = untrained_network(tmp_path / "network.safetensors", glyphs.images.shape[1])
    shipped.make(glyphs, network)
    p = FewShot(dataset="glyphs", features="shipped", K=1, queries=5, steps=5, val_episodes=10, test_episodes=60)
    return p, glyphs, network


def test_both_kinds_of_features_answer_the_same_tasks_almost_alike(world):
    p, glyphs, network = world
    trained = few_shot.few_shot(p)
    record = compression(trained, glyphs, network)
    assert record.metrics["shipped"] == pytest.approx(trained.metrics["best/1shot"])
    exact, coarse = (record.arrays[name].astype(float) for name in ("exact", "shipped"))
    assert record.metrics["difference"] == pytest.approx(100 * np.mean(coarse - exact) / 25)
    assert abs(record.metrics["difference"]) < 2
    assert record.metrics["megabytes"] == pytest.approx(shipped.file("glyphs", "conv4-64").stat().st_size / 1e6)


def test_only_a_run_on_shipped_features_can_be_compared(world):
    p, glyphs, network = world
    other = few_shot.few_shot(dataclasses.replace(p, features="images"), glyphs, network)
    with pytest.raises(ValueError, match="features='shipped'"):
        compression(other, glyphs, network)
