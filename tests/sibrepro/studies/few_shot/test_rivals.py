"""The run of a rival."""

from __future__ import annotations

import pytest
from tiny_images import few_shot_set, untrained_network

from sibcore.evaluate import evaluate
from sibrepro.meta_training.banks import banks_of, tasks
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot
from sibrepro.rivals import BASELINES
from sibrepro.studies.few_shot.rivals import Rival, rival


def test_a_rival_is_scored_on_the_tasks_of_the_few_shot_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    noisy = few_shot_set(8, 32, noise=0.5)
    network = untrained_network(tmp_path / "network.safetensors", noisy.images.shape[1])
    same = {"dataset": "noise", "queries": 5, "val_episodes": 15, "test_episodes": 30}
    record = rival(Rival(method="soft-k-means", **same), data=noisy, network=network)
    trained = few_shot(FewShot(K=0, steps=1, **same), noisy, network)
    assert record.provenance["data"] == trained.provenance["data"]

    bank = banks_of(FewShot(**same), noisy, network).load()["test"]
    method = BASELINES["soft-k-means"](5, **record.metrics["options"])
    for name, alpha in {"balanced": None, "unbalanced": 2.0}.items():
        score = evaluate(method, bank.features, tasks(FewShot(**same), bank, "test", alpha))
        assert record.metrics[name] == pytest.approx(100 * score.mean)
        assert record.arrays[name].tolist() == pytest.approx((25 * score.accuracies).tolist())
    assert record.metrics["balanced"] != record.metrics["unbalanced"]
    assert record.metrics["episodes_per_second"] > 0


def test_an_unknown_rival_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no method 'knn': expected one of nearest-centroid"):
        rival(Rival(method="knn"))
