"""Does it matter how the images were stored? The same trained SIB on test images that went through JPEG."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sibcore import train as meta
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.files import sha256
from sibcore.vision import pretrain
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot.experiment import FewShot

QUALITIES = (95, 75)


def recoding(trained: runs.Record, data: ImageSet, network: Path | None = None) -> runs.Record:
    """The record of testing the SIB of a few-shot run (its best checkpoint) on test images as they are and as JPEG.

    metrics: accuracies in percent on the same tasks, "original" and such as "jpeg95", each with "..._ci95"
    arrays: queries answered rightly in each task
    """
    p, checkpoint = FewShot(**trained.params), trained.folder / meta.BEST
    network = network or few_shot.pretrained(data, backbone=p.backbone).folder / pretrain.BACKBONE

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        device = pick_device()
        sib = meta.load_sib(checkpoint)[0].to(device)
        f = load_network(network)[0].to(device, memory_format=torch.channels_last)
        images, bank = data.images[data.rows("test")], few_shot.source(p, data, network).banks()["test"]
        tasks = few_shot.tasks(p, bank, "test").to(device)
        versions = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
        metrics, arrays = {}, {}
        for name, pictures in versions.items():
            score = evaluate(sib, extract(f, torch.from_numpy(pictures), what=f"features of {name}"), tasks)
            metrics |= {name: 100 * score.mean, f"{name}_ci95": 100 * score.interval}
            arrays[name] = score.right(p.ways * p.queries)
        return metrics, arrays

    hashes = {data.name: data.sha256, "network": sha256(network), "trained": sha256(checkpoint)}
    return runs.compute_or_load("recoding", p, compute, data=hashes, long=True)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """uint8 [N, H, W, 3] -> the same after JPEG compression."""
    return np.stack([_one_as_jpeg(image, quality) for image in images])


def _one_as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=quality)
    return np.asarray(Image.open(content))
