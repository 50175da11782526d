"""The effect of compression, measured on a small set whose features are shipped for the test."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny_images import few_shot_set, untrained_network

from sibrepro.meta_training import shipped
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot
from sibrepro.studies.few_shot.compression import compression


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project that ships features of small pictures."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SIB_HOME", str(folder))
        noisy = few_shot_set(8, 16, noise=0.5)
        shipped.make(noisy, untrained_network(folder / "network.safetensors", noisy.images.shape[1]))
    return folder


@pytest.fixture
def world(home, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(home / "cache"))
    monkeypatch.setenv("SIB_HOME", str(home))
    noisy, network = few_shot_set(8, 16, noise=0.5), home / "network.safetensors"
    p = FewShot(dataset="noise", features="shipped", K=1, queries=5, steps=5, val_episodes=10, test_episodes=60)
    return p, noisy, network


def test_both_kinds_of_features_answer_the_same_tasks_almost_alike(world):
    p, noisy, network = world
    trained = few_shot(p)
    record = compression(trained, noisy, network)
    assert record.metrics["shipped"] == pytest.approx(trained.metrics["best/1shot"])
    exact, coarse = (record.arrays[name].astype(float) for name in ("exact", "shipped"))
    assert record.metrics["difference"] == pytest.approx(100 * np.mean(coarse - exact) / 25)
    assert record.metrics["difference_ci95"] == pytest.approx(100 * 1.96 * np.std(coarse - exact) / 25 / 60**0.5)
    assert abs(record.metrics["difference"]) < 2
    assert record.metrics["megabytes"] == pytest.approx(shipped.file("noise", "conv4-64").stat().st_size / 1e6)


def test_only_a_run_on_shipped_features_can_be_compared(world):
    p, noisy, network = world
    other = few_shot(dataclasses.replace(p, features="images"), noisy, network)
    with pytest.raises(ValueError, match="features='shipped'"):
        compression(other, noisy, network)
