"""Runs that test rival methods on the very tasks that SIB is tested on."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from sibcore.evaluate import evaluate
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.meta_training.banks import Banks, banks_of, numbers, tasks
from sibrepro.meta_training.settings import ALPHA, Tested
from sibrepro.params import Count, parameters
from sibrepro.rivals import BASELINES, tune


@parameters
class Rival(Tested):
    """The settings of one method of `sibrepro.rivals` on one kind of task."""

    method: str = Field("nearest-centroid", description="a key of BASELINES")
    val_episodes: Count = Field(500, description="tasks of validation classes on which options are chosen")
    averaged: bool = Field(False, description="as in FewShot")


def rival(p: Rival, **images: Any) -> Record:
    """Return the run of a rival method.

    Args:
        p: its settings.
        images: the image set (`data`) and its feature network (`network`), where they are at hand already.
    """
    return RIVAL.run(p, **images)


def inputs(p: Rival, **images: Any) -> Inputs:
    """Return the features by split. Raise ValueError if the method of these settings does not exist."""
    if p.method not in BASELINES:
        raise ValueError(f"there is no method {p.method!r}: expected one of {', '.join(BASELINES)}")
    return banks_of(p, **images)


def compute(p: Rival, banks: Banks) -> Numbers:
    """Choose the method's options on validation classes, and test it on test classes.

    Returns:
        metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet queries), each with "..._ci95"; the
            chosen "options"; "episodes_per_second".
        arrays: the number of correctly answered queries of each task, "balanced" and "unbalanced".
    """
    method = BASELINES[p.method]
    options = tune(method, p.ways, banks["val"].features, tasks(p, banks["val"], "val"))
    scores = {}
    for name, alpha in {"balanced": None, "unbalanced": ALPHA}.items():
        fixed, began = tasks(p, banks["test"], "test", alpha), time.perf_counter()
        scores[name] = evaluate(method(p.ways, **options), banks["test"].features, fixed)
        speed = len(fixed) / (time.perf_counter() - began)
    metrics, arrays = numbers(scores, p.ways * p.queries)
    return metrics | {"options": options, "episodes_per_second": speed}, arrays


RIVAL = Experiment(
    "baseline",
    Rival,
    compute,
    inputs,
    oldest="method dataset backbone features ways shots queries val_episodes test_episodes".split(),
    # When it was computed again, TIM at its temperature of 5 changed its answers in 32 of 200 unbalanced tasks, and its
    # mean by 0.33 points.
    tolerance={"episodes_per_second": None, "*": 1.0},
)
