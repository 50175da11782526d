"""What its images do to a trained SIB: features that were not compressed for shipping, and pictures stored as JPEG."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract, feature_bank
from sibrepro.facts import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import Banks, Numbers, examine, numbers, pretrained_network, tasks
from sibrepro.few_shot.settings import COMPRESSION, JPEG, FewShot
from sibrepro.statistics import paired

QUALITIES = (95, 75)


def compression(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on shipped features on these and on exact ones.

    metrics: accuracies in percent on the same tasks, "exact" and "shipped"; the paired "difference" and its "..._ci95";
    "megabytes" of the file; arrays: queries answered rightly in each task
    """
    if trained.params["features"] != "shipped":
        raise ValueError(f"{trained.id} is of images: the effect of compression is that on features='shipped'")

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        exact = feature_bank(network or pretrained_network(data, p.backbone), data, "test")
        versions = {"exact": exact.features, "shipped": banks["test"].features}
        metrics, arrays = _on_the_same_tasks(sib, versions, banks, p)
        difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
        metrics = {name: metrics[name] for name in versions}
        metrics |= {"difference": difference.mean, "difference_ci95": difference.ci95}
        return metrics | {"megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6}, arrays

    return examine(COMPRESSION, trained, compute)


def jpeg(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on test images as they are and as JPEG.

    metrics: accuracies in percent on the same tasks, "original" and such as "jpeg95", each with "..._ci95"
    arrays: queries answered rightly in each task
    """

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        f = load_network(network or pretrained_network(data, p.backbone))[0]
        f = f.to(pick_device(), memory_format=torch.channels_last)
        images = data.images[data.rows("test")]
        pictures = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
        versions = {
            name: extract(f, torch.from_numpy(seen), what=f"features of {name}") for name, seen in pictures.items()
        }
        return _on_the_same_tasks(sib, versions, banks, p)

    return examine(JPEG, trained, compute, data=data, network=network)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """uint8 [N, H, W, 3] -> the same after JPEG compression."""
    contents = [io.BytesIO() for _ in images]
    for image, content in zip(images, contents, strict=True):
        Image.fromarray(image).save(content, "JPEG", quality=quality)
    return np.stack([np.asarray(Image.open(content)) for content in contents])


def _on_the_same_tasks(sib: SIB, versions: Mapping[str, Tensor], banks: Banks, p: FewShot) -> Numbers:
    fixed = tasks(p, banks["test"], "test").to(pick_device())
    return numbers({name: evaluate(sib, bank, fixed) for name, bank in versions.items()}, p.ways * p.queries)
