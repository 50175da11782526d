"""What compression changes, as runs: of the features that come with the project, and of pictures stored as JPEG."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sibcore import datasets
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract, feature_bank
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.meta_training import shipped
from sibrepro.meta_training.banks import Banks, numbers, tasks
from sibrepro.meta_training.pretraining import pretrained_network
from sibrepro.meta_training.settings import OLDEST, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with
from sibrepro.statistics import paired

QUALITIES = (95, 75)  # of JPEG
Loaded = tuple[SIB, Banks, ImageSet, Path]  # with the images, and the file of their feature network


def compression(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """Return the run of testing the SIB of a few-shot run on shipped features on these and on exact ones."""
    if trained.params["features"] != "shipped":
        raise ValueError(f"{trained.id} is of images: the effect of compression is that on features='shipped'")
    return COMPRESSION.run(FEW_SHOT.settings_of(trained), trained=trained, data=data, network=network)


def shipped_and_images(
    p: FewShot, trained: Record | None = None, data: ImageSet | None = None, network: Path | None = None
) -> Inputs:
    """Return a trained SIB and the project's features, with the images and the network that they are of."""
    data, origin = data or datasets.load(p.dataset), trained_with(p, trained)
    return Inputs(origin.hashes, lambda: (*origin.load(), data, network or pretrained_network(data, p.backbone)))


def compute_compression(p: FewShot, inputs: Loaded) -> Numbers:
    """Test on the same tasks of exact and of shipped features.

    Returns:
        metrics: accuracies in percent, "exact" and "shipped"; the paired "difference" and its "..._ci95"; "megabytes"
            of the file.
        arrays: queries answered rightly in each task.
    """
    sib, banks, data, network = inputs
    versions = {"exact": feature_bank(network, data, "test").features, "shipped": banks["test"].features}
    metrics, arrays = _on_the_same_tasks(sib, versions, banks, p)
    difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
    metrics = {name: metrics[name] for name in versions}
    metrics |= {"difference": difference.mean, "difference_ci95": difference.ci95}
    return metrics | {"megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6}, arrays


def jpeg(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """Return the run of testing the SIB of a few-shot run on test images as they are and as JPEG."""
    return JPEG.run(FEW_SHOT.settings_of(trained), trained=trained, data=data, network=network)


def trained_and_images(
    p: FewShot, trained: Record | None = None, data: ImageSet | None = None, network: Path | None = None
) -> Inputs:
    """Return a trained SIB and its features, with the images and the network that they are of."""
    data = data or datasets.load(p.dataset)
    origin = trained_with(p, trained, data, network)
    return Inputs(origin.hashes, lambda: (*origin.load(), data, network or pretrained_network(data, p.backbone)))


def compute_jpeg(p: FewShot, inputs: Loaded) -> Numbers:
    """Test on the same tasks of images as they are and as JPEG.

    Returns:
        metrics: accuracies in percent, "original" and such as "jpeg95", each with "..._ci95".
        arrays: queries answered rightly in each task.
    """
    sib, banks, data, network = inputs
    f = load_network(network)[0].to(pick_device(), memory_format=torch.channels_last)
    images = data.images[data.rows("test")]
    pictures = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
    pictures = {name: torch.from_numpy(seen) for name, seen in pictures.items()}
    versions = {name: extract(f, seen, what=f"features of {name}") for name, seen in pictures.items()}
    return _on_the_same_tasks(sib, versions, banks, p)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """uint8 [N, H, W, 3] -> the same after JPEG compression."""
    contents = [io.BytesIO() for _ in images]
    for image, content in zip(images, contents, strict=True):
        Image.fromarray(image).save(content, "JPEG", quality=quality)
    return np.stack([np.asarray(Image.open(content)) for content in contents])


def _on_the_same_tasks(sib: SIB, versions: Mapping[str, Tensor], banks: Banks, p: FewShot) -> Numbers:
    fixed = tasks(p, banks["test"], "test").to(pick_device())
    return numbers({name: evaluate(sib, bank, fixed) for name, bank in versions.items()}, p.ways * p.queries)


COMPRESSION = Experiment(
    "compression", FewShot, compute_compression, shipped_and_images, oldest=OLDEST, tolerance={"*": 0.05}
)
JPEG = Experiment("recoding", FewShot, compute_jpeg, trained_and_images, oldest=OLDEST, tolerance={"*": 0.2})
