"""Scores and their intervals, by simulation and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from few_shot_records import rival, sib

from sibrepro.statistics import Score, bars, by, metric, over_seeds, paired, right


def test_with_one_seed_the_interval_is_that_of_the_mean_over_tasks():
    score = over_seeds(np.array([[10, 12, 15, 9]], np.uint8), 15)
    assert score.mean == pytest.approx(100 * 46 / 60)
    assert score.ci95 == pytest.approx(100 * 1.96 * np.std([10, 12, 15, 9]) / 15 / 2)


def test_with_several_seeds_their_spread_is_added():
    answers = np.array([[10, 12, 15, 9], [11, 14, 15, 12]], np.uint8)
    tasks = np.var([10.5, 13, 15, 10.5]) / 4
    seeds = np.var([46 / 4, 52 / 4], ddof=1) / 2
    score = over_seeds(answers, 15)
    assert score.mean == pytest.approx(100 * 98 / 120)
    assert score.ci95 == pytest.approx(100 / 15 * 1.96 * (tasks + seeds) ** 0.5)


def test_the_interval_covers_the_truth_as_often_as_it_says_when_tasks_and_seeds_both_vary():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        task, seed = rng.normal(0, 8, 400), rng.normal(0, 1.5, 8)
        score = over_seeds(60 + task + seed[:, None] + rng.normal(0, 4, (8, 400)), 100)
        hits += abs(score.mean - 60) <= score.ci95
    assert 0.90 <= hits / 600 <= 0.98  # eight seeds are few, so a little below 95 %


def test_differences_are_taken_task_by_task_and_small_numbers_do_not_wrap_around():
    first, second = np.array([70, 10, 40], np.uint8), np.array([69, 12, 41], np.uint8)
    score = paired(first, second, 75)
    assert score.mean == pytest.approx(100 * (2 / 3) / 75)
    assert score.ci95 == pytest.approx(100 * 1.96 * np.std([-1, 2, 1]) / 75 / 3**0.5)
    seeds = paired(np.stack([first, first]), np.stack([second, second]), 75)
    assert seeds.mean == pytest.approx(score.mean)


def test_seeds_are_paired_with_each_other():
    first, second = np.array([[40, 50], [60, 70]], np.uint8), np.array([[41, 52], [63, 74]], np.uint8)
    tasks, seeds = np.var([2, 3]) / 2, np.var([1.5, 3.5], ddof=1) / 2
    score = paired(first, second, 100)
    assert score.mean == pytest.approx(2.5)
    assert score.ci95 == pytest.approx(1.96 * (tasks + seeds) ** 0.5)


def test_a_score_reads_well():
    assert str(Score(61.234, 0.456)) == "61.23 ± 0.46"


def test_right_answers_and_metrics_of_records():
    seeds = [sib(60, seed=seed) for seed in (0, 1, 2)]
    answers = right(seeds, "last/5shot")
    assert answers.shape == (3, 50)
    assert (answers[1] == seeds[1].arrays["last/5shot"]).all()
    one = rival(62)
    assert metric(one, "balanced") == Score(one.metrics["balanced"], 0.4)


def test_records_by_their_parameters():
    made = [sib(60, shots=shots, K=K, seed=seed) for seed in (0, 1) for shots in (1, 5) for K in (0, 3)]
    groups = by(made, "shots", "K")
    assert list(groups) == [(1, 0), (1, 3), (5, 0), (5, 3)]
    assert groups[5, 0] == [made[2], made[6]]
    assert by(made, "seed") == {0: made[:4], 1: made[4:]}


def test_bars_are_means_and_widths():
    assert bars([Score(60, 1), Score(61, 2)]).tolist() == [[60, 61], [1, 2]]
    assert bars([]).shape == (2, 0)
