"""Runs that measure what compression costs: of the features in the repository, and of pictures stored as JPEG."""

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
from sibrepro.meta_training.settings import OLDEST, SPELLING, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with
from sibrepro.statistics import paired

QUALITIES = (95, 75)  # The JPEG qualities that are tried.
Loaded = tuple[SIB, Banks, ImageSet, Path]  # What `inputs` loads; the path is the file of the feature network.


def compression(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """Return the run that tests a trained SIB on the compressed features and on the exact ones.

    Args:
        trained: a few-shot run on the features in the repository.
        data: the image set that these features were computed from.
        network: the file of the feature network; it is pretrained if there is none.
    """
    if trained.params["features"] != "shipped":
        raise ValueError(f"{trained.id} is of images: the effect of compression is that on features='shipped'")
    return COMPRESSION.run(FEW_SHOT.settings_of(trained), trained=trained, data=data, network=network)


def jpeg(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """Return the run that tests a trained SIB on test images as they are and as JPEG. See `compression`."""
    return JPEG.run(FEW_SHOT.settings_of(trained), trained=trained, data=data, network=network)


def inputs(
    p: FewShot, trained: Record | None = None, data: ImageSet | None = None, network: Path | None = None
) -> Inputs:
    """Return the SIB that was trained with settings `p`, its features by split, the images and the feature network."""
    data = data or datasets.load(p.dataset)
    origin = trained_with(p, trained, data, network)
    return Inputs(origin.hashes, lambda: (*origin.load(), data, network or pretrained_network(data, p.backbone)))


def compute_compression(p: FewShot, loaded: Loaded) -> Numbers:
    """Test on the same tasks of exact and of compressed features.

    Returns:
        metrics: accuracies in percent, "exact" and "shipped"; the paired "difference" and its "..._ci95"; "megabytes"
            of the file.
        arrays: the number of correctly answered queries of each task, "exact" and "shipped".
    """
    sib, banks, data, network = loaded
    versions = {"exact": feature_bank(network, data, "test").features, "shipped": banks["test"].features}
    scores, arrays = _test_on_the_same_tasks(sib, versions, banks, p)
    difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
    metrics = {
        "exact": scores["exact"],
        "shipped": scores["shipped"],
        "difference": difference.mean,
        "difference_ci95": difference.ci95,
        "megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6,
    }
    return metrics, arrays


def compute_jpeg(p: FewShot, loaded: Loaded) -> Numbers:
    """Test on the same tasks of images as they are and as JPEG.

    Returns:
        metrics: accuracies in percent, "original", "jpeg95" and "jpeg75", each with "..._ci95".
        arrays: the number of correctly answered queries of each task, under the same names.
    """
    sib, banks, data, network = loaded
    f = load_network(network)[0].to(pick_device(), memory_format=torch.channels_last)
    images = data.images[data.rows("test")]
    pictures = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
    versions = {name: extract(f, torch.from_numpy(seen), what=f"features of {name}") for name, seen in pictures.items()}
    return _test_on_the_same_tasks(sib, versions, banks, p)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """Return images, uint8 `[N, H, W, 3]`, as they look after JPEG compression with a quality of 1 to 95."""
    compressed = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        compressed.append(np.asarray(Image.open(file)))
    return np.stack(compressed)


def _test_on_the_same_tasks(sib: SIB, versions: Mapping[str, Tensor], banks: Banks, p: FewShot) -> Numbers:
    """Return the accuracies and correct answers of SIB on each version of the test features."""
    fixed = tasks(p, banks["test"], "test").to(pick_device())
    return numbers({name: evaluate(sib, bank, fixed) for name, bank in versions.items()}, p.ways * p.queries)


COMPRESSION = Experiment(
    "compression", FewShot, compute_compression, inputs, oldest=OLDEST, spelling=SPELLING, tolerance={"*": 0.05}
)
JPEG = Experiment(
    "jpeg_compression", FewShot, compute_jpeg, inputs, oldest=OLDEST, spelling=SPELLING, tolerance={"*": 0.2}
)
