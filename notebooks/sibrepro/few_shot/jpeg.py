"""Does it matter how the images were stored? The same trained SIB on test images that went through JPEG."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract
from sibrepro.facts import Record
from sibrepro.few_shot.experiment import Banks, Numbers, examine, pretrained_network, tasks
from sibrepro.few_shot.settings import JPEG, FewShot

QUALITIES = (95, 75)


def jpeg(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on test images as they are and as JPEG.

    metrics: accuracies in percent on the same tasks, "original" and such as "jpeg95", each with "..._ci95"
    arrays: queries answered rightly in each task
    """

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        f = load_network(network or pretrained_network(data, p.backbone))[0]
        f = f.to(pick_device(), memory_format=torch.channels_last)
        images, fixed = data.images[data.rows("test")], tasks(p, banks["test"], "test").to(pick_device())
        versions = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
        metrics, arrays = {}, {}
        for name, pictures in versions.items():
            score = evaluate(sib, extract(f, torch.from_numpy(pictures), what=f"features of {name}"), fixed)
            metrics |= {name: 100 * score.mean, f"{name}_ci95": 100 * score.interval}
            arrays[name] = score.right(p.ways * p.queries)
        return metrics, arrays

    return examine(JPEG, trained, compute, data=data, network=network)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """uint8 [N, H, W, 3] -> the same after JPEG compression."""
    return np.stack([_one_as_jpeg(image, quality) for image in images])


def _one_as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=quality)
    return np.asarray(Image.open(content))
