"""Settings of the paper's protocol, and scores of meta-trained SIBs: what the studies of such runs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sibrepro import statistics
from sibrepro.facts import Record
from sibrepro.meta_training import shipped
from sibrepro.meta_training.settings import TEST_EPISODES, FewShot
from sibrepro.statistics import Score, over_seeds, right

SEEDS = (0, 1, 2)
AVERAGED = {("mini-imagenet", "conv4-64"), ("mini-imagenet", "conv4-128")}  # chosen on validation classes, K = 0


def protocol(
    dataset: str, backbone: str, *, features: str = "shipped", test_episodes: int = 0, **changes: Any
) -> FewShot:
    """The paper's protocol but for these changes: 40,000 steps, and as many test tasks as its data set has.

    Of features that do not come with the project, those of images are meant.
    """
    origin = {"dataset": dataset, "backbone": backbone, "averaged": (dataset, backbone) in AVERAGED}
    origin["features"] = features if shipped.file(dataset, backbone).is_file() else "images"
    episodes = test_episodes or TEST_EPISODES.get(dataset, 5000)
    return FewShot(**origin, test_episodes=episodes, **changes)


def queries(record: Record) -> int:
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], shots: int | None = None) -> Score:
    """The test score of several seeds of one setting, on tasks of `shots`, or of those that they were trained with."""
    name = f"best/{shots or records[0].params['shots']}shot"
    return over_seeds(right(records, name), queries(records[0]))


def gain(before: Sequence[Record], after: Sequence[Record], shots: int | None = None) -> Score:
    """How much better `after` answers the same tasks, of `shots`, or of those that `before` was trained with."""
    name = f"best/{shots or before[0].params['shots']}shot"
    return statistics.gain(before, after, lambda record: record.arrays[name], queries(before[0]))
