"""Statistics by simulation and by hand, and the record of a baseline."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_images import untrained_network

from sibcore import datasets
from sibcore import train as meta
from sibcore.baselines import BASELINES
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import rivals as comparison
from sibrepro.few_shot.rivals import Baseline, over_seeds, paired


def test_with_one_seed_the_interval_is_that_of_the_mean_over_tasks():
    right = np.array([[10, 12, 15, 9]], np.uint8)
    score = over_seeds(right, 15)
    assert score.mean == pytest.approx(100 * 46 / 60)
    assert score.ci95 == pytest.approx(100 * 1.96 * np.std([10, 12, 15, 9]) / 15 / 2)


def test_the_interval_covers_the_truth_as_often_as_it_says_when_tasks_and_seeds_both_vary():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        task, seed = rng.normal(0, 8, 400), rng.normal(0, 1.5, 8)
        right = 60 + task + seed[:, None] + rng.normal(0, 4, (8, 400))
        score = over_seeds(right, 100)
        hits += abs(score.mean - 60) <= score.ci95
    assert 0.90 <= hits / 600 <= 0.98  # eight seeds are few, so a little below 95 %


def test_differences_are_taken_task_by_task_and_small_numbers_do_not_wrap_around():
    first, second = np.array([70, 10, 40], np.uint8), np.array([69, 12, 41], np.uint8)
    score = paired(first, second, 75)
    assert score.mean == pytest.approx(100 * (2 / 3) / 75)
    assert score.ci95 == pytest.approx(100 * 1.96 * np.std([-1, 2, 1]) / 75 / 3**0.5)
    seeds = paired(np.stack([first, first]), np.stack([second, second]), 75)
    assert seeds.mean == pytest.approx(score.mean)


def test_a_score_reads_well():
    assert str(comparison.Score(61.234, 0.456)) == "61.23 ± 0.46"


def test_the_record_of_a_baseline_is_its_accuracy_on_the_tasks_of_the_few_shot_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    glyphs = datasets.load("glyphs", per_class=32)
    network = untrained_network(tmp_path / "network.safetensors", glyphs.images.shape[1])
    p = Baseline(method="soft-k-means", dataset="glyphs", queries=5, val_episodes=15, test_episodes=30)
    record = comparison.baseline(p, data=glyphs, network=network)
    bank = few_shot.source(p.tasks(), glyphs, network).banks()["test"]
    tasks = few_shot.tasks(p.tasks(), bank, "test")
    method = BASELINES["soft-k-means"](5, **record.metrics["options"])
    assert record.metrics["balanced"] == pytest.approx(100 * meta.evaluate(method, bank.features, tasks).mean)
    assert record.arrays["unbalanced"].shape == (30,)
    assert record.metrics["episodes_per_second"] > 0


def test_an_unknown_baseline_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no baseline 'knn': expected one of nearest-centroid"):
        comparison.baseline(Baseline(method="knn"))
