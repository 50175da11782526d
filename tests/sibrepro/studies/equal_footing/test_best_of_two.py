"""The best choice between two rivals, on made-up answers."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from sibrepro.statistics import Score
from sibrepro.studies.equal_footing import best_of_two
from sibrepro.studies.equal_footing.experiment import MethodSettings


def run(seed: int, method: str, **metrics: float):
    """A record of right answers to 40 tasks of each kind, of 10 queries each."""
    rng = np.random.default_rng([seed, *method.encode()])
    p = MethodSettings(method=method, ways=2, queries=5, seed=seed)
    arrays = {kind: rng.integers(3, 11, 40).astype(np.uint8) for kind in ("balanced", "dirichlet2")}
    return types.SimpleNamespace(params=dataclasses.asdict(p), arrays=arrays, metrics=metrics)


def made_up():
    found = {("sib-set", "mixture", 1): [run(seed, "sib-set", validation=60.0) for seed in range(2)]}
    found |= {(method, "", 1): [run(0, method)] for method in ("pt-map", "paddle", "tim")}
    found["pt-map", "", 1][0].arrays["balanced"][:] = 9
    found["paddle", "", 1][0].arrays["dirichlet2"][:] = 9
    rng = np.random.default_rng(3)
    return found, {"balanced": rng.random(40).round(1), "dirichlet2": (0.3 + rng.random(40)).round(1)}


def test_no_threshold_does_better():
    found, imbalance = made_up()
    result = best_of_two.best_of_two(found, 1, imbalance)
    assert result.rivals == {"balanced": "pt-map", "dirichlet2": "paddle"}
    one, other = (found[name, "", 1][0].arrays for name in ("pt-map", "paddle"))
    sums = []
    for threshold in np.arange(-0.05, 2, 0.05):
        means = [np.where(imbalance[kind] < threshold, one[kind], other[kind]).mean() for kind in imbalance]
        sums.append(10 * sum(means))
    assert sum(score.mean for score in result.scores.values()) == pytest.approx(max(sums))
    ours = np.mean([r.arrays[kind].mean() for r in found["sib-set", "mixture", 1] for kind in imbalance])
    assert result.gain.mean == pytest.approx(10 * ours - max(sums) / 2)


def test_the_auc_counts_the_pairs_of_tasks_that_are_ordered_rightly():
    found, imbalance = made_up()
    low, high = imbalance["balanced"], imbalance["dirichlet2"]
    pairs = [(a < b) + (a == b) / 2 for a in low for b in high]
    assert best_of_two.best_of_two(found, 1, imbalance).auc == pytest.approx(np.mean(pairs))


def test_answers_of_balanced_tasks_are_less_unequal():
    imbalance = best_of_two.estimated_imbalance(dataclasses.asdict(MethodSettings(test_episodes=60)))
    assert {kind: values.shape for kind, values in imbalance.items()} == {"balanced": (60,), "dirichlet2": (60,)}
    assert imbalance["balanced"].mean() < imbalance["dirichlet2"].mean()
    assert all((values >= 0).all() and (values <= 0.8).all() for values in imbalance.values())


@pytest.mark.parametrize(("mean", "word"), [(0.5, "better"), (-0.5, "worse"), (0.1, "level")])
def test_the_verdict_on_a_gain_is_that_of_its_interval(mean, word):
    assert best_of_two.verdict(Score(mean, 0.2)).startswith(word)
