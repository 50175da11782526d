"""Runs that pretrain a feature network."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from sibcore import datasets
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device, pick_precision
from sibcore.files import sha256
from sibcore.settings import setting
from sibcore.vision import pretrain
from sibrepro.facts import Experiment, Inputs, Numbers, Record, published


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(pretrain.Recipe):
    """The settings of a pretraining.

    Attributes:
        dataset: the image set.
        start: the id of the published pretraining whose network this one starts from; empty to start from scratch.
    """

    dataset: str = setting("cifar-fs")
    start: str = setting("")


# How each pretraining differs from the recipe's defaults, by image set and backbone. So that a CPU can train on images
# of 84 pixels, it computes in bfloat16 and begins with smaller images. Conv-4-128 starts with the two lowest layers of
# Conv-4-64, which have the same shape, and keeps the first of them as it is.
_QUICKER = {"small": 48, "precision": "bfloat16"}
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("cifar-fs", "conv4-128"): {
        "start": "pretrain-40e8d8a042c7",
        "frozen": 1,
        "epochs": 30,
        "small": 24,
        "small_epochs": 12,
    },
    ("cifar-fs", "wrn-16-2"): {"epochs": 40, "small": 24, "small_epochs": 16, "precision": "bfloat16"},
    # as many epochs as two cores of a processor with AVX-512 bfloat16 train in an hour and a half
    ("cifar-fs", "wrn-28-10"): {"epochs": 8, "batch": 64, "small": 16, "small_epochs": 7, "precision": "bfloat16"},
    ("mini-imagenet", "conv4-64"): {"epochs": 30, "small_epochs": 20, **_QUICKER},
    ("mini-imagenet", "conv4-128"): {
        "start": "pretrain-1bb5f0f0eb68",
        "frozen": 1,
        "epochs": 25,
        "small_epochs": 8,
        **_QUICKER,
    },
}


def pretrained_network(data: ImageSet, backbone: str, **changes: Any) -> Path:
    """Return the file of the feature network that experiments on `data` use.

    Args:
        data: the image set.
        backbone: the kind of network.
        changes: changes to the defaults of the recipe. If one of them is neither zero nor empty, they replace the
            changes in `RECIPES`.
    """
    given = {name: value for name, value in changes.items() if value}
    recipe = given or RECIPES.get((data.name, backbone), {})
    return pretrained(data, backbone=backbone, **recipe).files.path(pretrain.BACKBONE)


def pretrained(data: ImageSet, **changes: Any) -> Record:
    """Return the run of a pretraining, which trains now if it has not run yet.

    The network is its file `backbone.safetensors`. `changes` are changes to the defaults of the recipe. The precision
    "auto" is replaced by the one that it stands for here, so that the run's id says what was computed.
    """
    if changes.get("precision") == "auto":
        changes["precision"] = pick_precision("auto", pick_device())
    return PRETRAIN.run(Pretraining(dataset=data.name, **changes), data=data)


def inputs(p: Pretraining, data: ImageSet | None = None) -> Inputs:
    """Return the images, and the file of the network that the pretraining starts from, or None."""
    data = data or datasets.load(p.dataset)
    start = published.find("pretrain")[p.start].files.path(pretrain.BACKBONE) if p.start else None
    hashes = {data.name: data.sha256} | ({"start": sha256(start)} if start else {})
    return Inputs(hashes, lambda: (data, start))


def compute(p: Pretraining, images: tuple[ImageSet, Path | None], folder: Path) -> Numbers:
    """Pretrain a feature network, and leave it in `folder`.

    Returns:
        metrics: the "best_epoch", its "validation" accuracy in percent, and "seconds".
        arrays: "loss", "accuracy" and "val" (the validation accuracy) of each epoch.
    """
    data, start = images
    recipe = pretrain.Recipe(**{field.name: getattr(p, field.name) for field in dataclasses.fields(pretrain.Recipe)})
    about = pretrain.pretrain(data, recipe, folder, start=start)
    history = {name: np.array([row[name] for row in about["history"]]) for name in ("loss", "accuracy", "val")}
    best = pretrain.best_epoch(about["history"], recipe)
    validation = 100 * float(history["val"][best - 1])
    return {"best_epoch": best, "validation": validation, "seconds": about["seconds"]}, history


# Another number of threads rounds differently. Training amplifies that, and moved accuracies by up to 0.13 points.
PRETRAIN = Experiment(
    "pretrain",
    Pretraining,
    compute,
    inputs,
    keeps_files=True,
    state=pretrain.CHECKPOINT,
    oldest="backbone epochs batch peak_lr warm_up momentum weight_decay jitter scale episodes seed dataset".split(),
    tolerance={"seconds": None, "best_epoch": None, "*": 2.0},
    network=pretrain.BACKBONE,
)
