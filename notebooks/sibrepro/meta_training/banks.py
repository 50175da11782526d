"""The features of each split, the fixed test episodes drawn from them, and the numbers that a run reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sibcore import datasets
from sibcore.datasets.base import ImageSet
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import Evaluation
from sibcore.files import sha256
from sibcore.vision.features import Features, feature_bank
from sibrepro.facts import Inputs, Numbers
from sibrepro.meta_training import shipped
from sibrepro.meta_training.pretraining import pretrained_network

SPLITS = ("train", "val", "test")
Banks = Mapping[str, Features]  # The features of each split.


def banks_of(p: Any, data: ImageSet | None = None, network: Path | None = None) -> Inputs:
    """Return the features of each split, as the settings ask: from the repository, or computed from images.

    Args:
        p: the settings of a run, such as `Tested` or `FewShot`.
        data: the image set; by default it is loaded by its name.
        network: the file of the feature network; by default the one that the recipe pretrains, now if necessary.
    """
    if p.features == "shipped":
        about = shipped.about(p.dataset, p.backbone)
        hashes = {p.dataset: about["data"], "network": about["network"]}
        return Inputs(hashes, lambda: shipped.load(p.dataset, p.backbone))
    # Only `FewShot` has all of these fields.
    changes = {name: getattr(p, name, None) for name in ("epochs", "rotation", "start")}
    views, averaged = getattr(p, "views", 0), getattr(p, "averaged", False)
    precision = getattr(p, "precision", "float32")
    data = data or datasets.load(p.dataset)
    network = network or pretrained_network(data, p.backbone, **changes)

    def bank(split: str) -> Features:
        return feature_bank(
            network, data, split, views if split == "train" else 0, averaged=averaged, precision=precision
        )

    hashes = {data.name: data.sha256, "network": sha256(network)}
    return Inputs(hashes, lambda: {split: bank(split) for split in SPLITS})


def numbers(scores: Mapping[str, Evaluation], queries: int) -> Numbers:
    """Return the metrics and arrays that a run reports of several tests.

    Args:
        scores: the accuracies of each test, by its name.
        queries: the number of queries of a task.

    Returns:
        metrics: the mean accuracy of each test in percent, and its 95 % interval as "..._ci95".
        arrays: the number of correctly answered queries of each task, `[N]`.
    """
    metrics = {name: 100 * score.mean for name, score in scores.items()}
    metrics |= {f"{name}_ci95": 100 * score.interval for name, score in scores.items()}
    return metrics, {name: score.right(queries) for name, score in scores.items()}


def tasks(p: Any, bank: Features, split: str, alpha: float | None = None) -> Tasks:
    """Return the fixed validation or test episodes. They do not depend on K, eta and the seed of training.

    Args:
        p: the settings of a run.
        bank: the features of the split.
        split: "val" or "test".
        alpha: the parameter of the Dirichlet distribution of queries over classes; None for balanced queries.
    """
    count = {"val": p.val_episodes, "test": p.test_episodes}[split]
    seed = 1_000_000 + SPLITS.index(split)  # Far from any seed of training.
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, alpha=alpha, class_names=bank.classes)
    return sampler.sample(0, count)
