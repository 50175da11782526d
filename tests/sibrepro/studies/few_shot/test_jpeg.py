"""JPEG's effect, on small pictures."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_images import few_shot_set, untrained_network

from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot
from sibrepro.studies.few_shot.compression import as_jpeg, jpeg


def test_jpeg_changes_a_picture_a_little_and_the_more_the_lower_its_quality():
    smooth = np.linspace(0, 255, 32 * 32 * 3).reshape(1, 32, 32, 3).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)
    images = np.concatenate([smooth, noise])
    fine, coarse = (np.abs(as_jpeg(images, quality).astype(int) - images) for quality in (95, 20))
    assert fine.shape == images.shape
    assert 0 < fine.mean() < coarse.mean()


@pytest.mark.thorough
def test_the_original_version_gives_the_numbers_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    noisy = few_shot_set(8, 16, noise=0.5)
    network = untrained_network(tmp_path / "network.safetensors", noisy.images.shape[1])
    p = FewShot(dataset="noise", K=1, queries=5, steps=5, val_episodes=10, test_episodes=40)
    trained = few_shot(p, noisy, network)
    record = jpeg(trained, noisy, network)
    assert record.metrics["original"] == pytest.approx(trained.metrics["best/1shot"])
    assert (record.arrays["original"] == trained.arrays["best/1shot"]).all()
    assert set(record.arrays) == {"original", "jpeg95", "jpeg75"}
    assert record.provenance["data"]["trained"] == trained.files.checkpoint_hash("best")
