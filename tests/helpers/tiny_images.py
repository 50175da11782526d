"""Small image sets, networks and picture files for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sibcore.datasets.base import ImageSet, Index, image_set
from sibcore.files import write_tensors
from sibcore.vision.backbones import feature_network


def tiny_set(classes: int = 11, images: int = 20, size: int = 16, noise: float = 0.5, seed: int = 0) -> ImageSet:
    """Return an image set in which each class is one random picture, mixed with noise of each image.

    Args:
        classes: number of classes. The last five are for validation, the others for training.
        images: images of each class.
        size: width and height in pixels.
        noise: the share of noise in each image; less noise makes classes easier to tell apart.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    pictures = rng.integers(0, 256, (classes, size, size, 3))
    spots = rng.integers(0, 256, (len(labels), size, size, 3))
    names = [f"class {number}" for number in range(classes)]
    splits = {"train": names[:-5], "val": names[-5:]}
    return image_set("tiny", _mixed(pictures[labels], spots, noise), Index(labels.tolist(), names, splits))


def few_shot_set(classes: int = 7, images: int = 12, size: int = 16, noise: float = 1.0) -> ImageSet:
    """Return an image set with training, validation and test classes, as many of each as `classes` says.

    The other arguments are those of `tiny_set`. By default images are pure noise, so classes cannot be told apart.
    """
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3 * classes), images)
    spots = rng.integers(0, 256, (len(labels), size, size, 3))
    pictures = rng.integers(0, 256, (3 * classes, size, size, 3))
    names = [f"class {number:02}" for number in range(3 * classes)]
    splits = {"train": names[:classes], "val": names[classes : 2 * classes], "test": names[2 * classes :]}
    return image_set("noise", _mixed(pictures[labels], spots, noise), Index(labels.tolist(), names, splits))


def _mixed(pictures: np.ndarray, spots: np.ndarray, noise: float) -> np.ndarray:
    """Mix pictures with a share of noise, as uint8."""
    return ((1 - noise) * pictures + noise * spots).astype(np.uint8)


def untrained_network(path: Path, image_size: int) -> Path:
    """Write a Conv-4-64 with its initial weights of seed 0 to `path`, and return the path."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        f = feature_network("conv4-64", image_size, (0.5,) * 3, (0.25,) * 3)
    write_tensors(path, f.state_dict(), {"backbone": "conv4-64", "image_size": image_size})
    return path


def png(image: np.ndarray) -> bytes:
    """Return the content of a PNG file of an image, uint8 `[H, W, 3]`."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, "PNG")
    return content.getvalue()


def plain(number: int, height: int = 5, width: int = 5) -> np.ndarray:
    """Return a picture of one colour, which encodes its number and stays the same when it is resized."""
    return np.full((height, width, 3), [number // 256, number % 256, 77], np.uint8)


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files, by their path in `folder`, and return the folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write files, by their path in the archive, to a zip archive, and return its path."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
