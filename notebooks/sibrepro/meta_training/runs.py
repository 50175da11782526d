"""The settings of the paper's protocol and scores over seeds, for all studies that meta-train a SIB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sibrepro import statistics
from sibrepro.facts import Record
from sibrepro.meta_training.settings import TEST_EPISODES, FewShot
from sibrepro.statistics import Score, over_seeds, right

SEEDS = (0, 1, 2)
SHIPPED = {("cifar-fs", "conv4-64")}  # The settings whose features the repository contains.
# Here features are averaged (`FewShot.averaged`). We chose this by the accuracy on validation classes with K = 0.
AVERAGED = {("mini-imagenet", "conv4-64"), ("mini-imagenet", "conv4-128")}


def protocol(
    dataset: str, backbone: str, *, features: str = "shipped", test_episodes: int = 0, **changes: Any
) -> FewShot:
    """Return the settings of the paper's protocol, with some of them changed.

    Args:
        dataset: the image set.
        backbone: the feature network.
        features: "shipped" for the features in the repository, where it has them; else they are computed from images.
        test_episodes: the number of test tasks; 0 for the paper's number on this image set.
        changes: other fields of `FewShot` that differ from the protocol.
    """
    origin = dataset, backbone
    return FewShot(
        dataset=dataset,
        backbone=backbone,
        averaged=origin in AVERAGED,
        features=features if origin in SHIPPED else "images",
        test_episodes=test_episodes or TEST_EPISODES.get(dataset, 5000),
        **changes,
    )


def queries(record: Record) -> int:
    """Return the number of queries in a test task of a run, over all classes."""
    return record.params["ways"] * record.params["queries"]


def sib_score(records: Sequence[Record], shots: int | None = None) -> Score:
    """Return the test accuracy of one setting in percent, over its seeds.

    Args:
        records: one run of each seed.
        shots: the number of shots of the test tasks; by default that of the training.
    """
    name = f"best/{shots or records[0].params['shots']}shot"
    return over_seeds(right(records, name), queries(records[0]))


def gain(before: Sequence[Record], after: Sequence[Record], shots: int | None = None) -> Score:
    """Return how many points more accurate `after` is than `before` on the same test tasks.

    Args:
        before: one run of each seed.
        after: one run of each seed, of another setting.
        shots: the number of shots of the test tasks; by default that of the training of `before`.
    """
    name = f"best/{shots or before[0].params['shots']}shot"
    return statistics.gain(before, after, lambda record: record.arrays[name], queries(before[0]))
