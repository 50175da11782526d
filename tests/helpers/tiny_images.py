"""Small images for tests."""

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
    """Each class is its own noise picture, seen through more noise; the last five classes are for validation."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    pictures = rng.integers(0, 256, (classes, size, size, 3))[labels]
    spots = rng.integers(0, 256, (len(labels), size, size, 3))
    names = [f"class {number}" for number in range(classes)]
    splits = {"train": names[:-5], "val": names[-5:]}
    mixed = ((1 - noise) * pictures + noise * spots).astype(np.uint8)
    return image_set("tiny", mixed, Index(labels.tolist(), names, splits))


def few_shot_set(classes: int = 7, images: int = 12, size: int = 16, noise: float = 1.0) -> ImageSet:
    """Pictures of so many classes in each of the splits of few-shot learning; with less `noise` they can be told."""
    rng, names = np.random.default_rng(0), [f"class {number:02}" for number in range(3 * classes)]
    labels = np.repeat(np.arange(len(names)), images)
    splits = {split: names[i * classes :][:classes] for i, split in enumerate(("train", "val", "test"))}
    spots = rng.integers(0, 256, (len(labels), size, size, 3))
    pictures = rng.integers(0, 256, (len(names), size, size, 3))[labels]
    mixed = ((1 - noise) * pictures + noise * spots).astype(np.uint8)
    return image_set("noise", mixed, Index(labels.tolist(), names, splits))


def untrained_network(path: Path, image_size: int) -> Path:
    """A Conv-4-64 with the first weights of seed 0, written to `path`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        f = feature_network("conv4-64", image_size, (0.5,) * 3, (0.25,) * 3)
    write_tensors(path, f.state_dict(), {"backbone": "conv4-64", "image_size": image_size})
    return path


def png(image: np.ndarray) -> bytes:
    """An image, uint8 [H, W, 3], as the content of a PNG file."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, "PNG")
    return content.getvalue()


def plain(number: int, height: int = 5, width: int = 5) -> np.ndarray:
    """A picture of one colour, which tells its number and stays the same at every size."""
    return np.full((height, width, 3), [number // 256, number % 256, 77], np.uint8)


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
