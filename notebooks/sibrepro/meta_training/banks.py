"""Banks of features, what is computed from them, and the episodes that are drawn from them."""

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
Banks = Mapping[str, Features]  # by split


def banks_of(p: Any, data: ImageSet | None = None, network: Path | None = None) -> Inputs:
    """Return the features by split that settings `p` name: the project's own, or those of images.

    A `network` that is not given is pretrained now if there is no run of it.
    """
    if p.features == "shipped":
        about = shipped.about(p.dataset, p.backbone)
        hashes = {p.dataset: about["data"], "network": about["network"]}
        return Inputs(hashes, lambda: shipped.load(p.dataset, p.backbone))
    data = data or datasets.load(p.dataset)
    network = network or pretrained_network(
        data, p.backbone, **{name: getattr(p, name, None) for name in ("epochs", "rotation", "start")}
    )
    hashes = {data.name: data.sha256, "network": sha256(network)}
    views, averaged = getattr(p, "views", 0), getattr(p, "averaged", False)

    def bank(split: str) -> Features:
        return feature_bank(network, data, split, views if split == "train" else 0, averaged=averaged)

    return Inputs(hashes, lambda: {split: bank(split) for split in SPLITS})


def numbers(scores: Mapping[str, Evaluation], queries: int) -> Numbers:
    """For a record: accuracies in percent, each with its "..._ci95", and the right answers of each task."""
    metrics = {name: 100 * score.mean for name, score in scores.items()}
    metrics |= {f"{name}_ci95": 100 * score.interval for name, score in scores.items()}
    return metrics, {name: score.right(queries) for name, score in scores.items()}


def tasks(p: Any, bank: Features, split: str, alpha: float | None = None) -> Tasks:
    """The fixed tasks of a split, the same for every K, eta and seed of training; balanced, or Dirichlet(alpha)."""
    count = {"val": p.val_episodes, "test": p.test_episodes}[split]
    seed = 1_000_000 + SPLITS.index(split)  # far from any seed of training
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, alpha=alpha, class_names=bank.classes)
    return sampler.sample(0, count)
