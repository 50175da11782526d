"""Settings of the paper's protocol, and scores of meta-trained SIBs: what the studies of such runs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sibrepro import statistics
from sibrepro.facts import Record
from sibrepro.meta_training.settings import TEST_EPISODES, FewShot
from sibrepro.statistics import Score, over_seeds

SEEDS = (0, 1, 2)
SHIPPED = {("cifar-fs", "conv4-64")}  # whose features come with the project
AVERAGED = {("mini-imagenet", "conv4-64"), ("mini-imagenet", "conv4-128")}  # chosen on validation classes, K = 0


def protocol(
    dataset: str, backbone: str, *, features: str = "shipped", test_episodes: int = 0, **changes: Any
) -> FewShot:
    """Return the settings of the paper's protocol but for these changes.

    That is 40,000 steps, and as many test tasks as the paper has of the data set. Where features do not come with the
    project, those of images are meant.
    """
    origin = {"dataset": dataset, "backbone": backbone, "averaged": (dataset, backbone) in AVERAGED}
    origin["features"] = features if (dataset, backbone) in SHIPPED else "images"
    episodes = test_episodes or TEST_EPISODES.get(dataset, 5000)
    return FewShot(**origin, test_episodes=episodes, **changes)


def queries(record: Record) -> int:
    """Return how many queries a test task of a run has."""
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], shots: int | None = None) -> Score:
    """Return the test score of several seeds of one setting, on tasks of `shots`, or of those it was trained with."""
    p = records[0].params
    name = f"best/{shots or p['shots']}shot"
    return over_seeds(np.stack([record.arrays[name] for record in records]), p["ways"] * p["queries"])


def gain(before: Sequence[Record], after: Sequence[Record], shots: int | None = None) -> Score:
    """How much better `after` answers the same tasks, of `shots`, or of those that `before` was trained with."""
    name = f"best/{shots or before[0].params['shots']}shot"
    return statistics.gain(before, after, lambda record: record.arrays[name], queries(before[0]))
