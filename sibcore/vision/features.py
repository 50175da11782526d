"""The feature bank: the features that a frozen network f gives of every image, computed once and kept on disk.

A file `<cache>/features/<data>-<split>-<key>.safetensors` holds the features of one split. Its key is a hash of the
network's file, the image set's content and the augmentation, so that an old file is never used for another network or
other images. The file also holds a hash of its numbers, so that a damaged one is noticed and made again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sibcore import fingerprint
from sibcore.datasets.base import ImageSet, cache_folder
from sibcore.datasets.progress import steps
from sibcore.device import Precision, autocast, pick_device, pick_precision
from sibcore.files import hash_of, key_of, read_tensors, sha256, write_tensors
from sibcore.seeds import combine
from sibcore.vision.augment import as_float, augment, draw
from sibcore.vision.backbones import Averaged, exact_convolutions, load_network

VIEWS = {"jitter": 0.4, "seed": 0}  # strength of the colour jitter of augmented views, and their seed
BATCH = 512
BATCH_PIXELS = 1 << 17  # pixels of a batch whose activations fit a CPU's cache: two images of 224 x 224


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """A split of an image set as features.

    Args:
        features: float32 `[N, d]`, of the images as they are.
        views: float32 `[R, N, d]`, of R random augmentations of each image; R may be 0.
        labels: int64 `[N]`, positions in `classes`.
        classes: names of the classes of the split.
        sha256: hash of the numbers in `features` and `views`.
    """

    features: Tensor
    views: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    sha256: str


def feature_bank(
    network: Path,
    data: ImageSet,
    split: str,
    views: int = 0,
    device: torch.device | None = None,
    cache: Path | None = None,
    averaged: bool = False,
    precision: Precision = "float32",
) -> Features:
    """Return the features of a split of an image set, from the cache or computed now.

    Args:
        network: file of the feature network.
        data: the image set.
        split: name of the split.
        views: number of augmented versions of each image (crop, flip and colour jitter, as in pretraining).
        device: where to compute; by default the fastest device there is.
        cache: the cache folder, or None for the usual one.
        averaged: if true, features are those of `backbones.Averaged`.
        precision: of convolutions, see `sibcore.device.pick_precision`.
    """
    device = device or pick_device()
    precision = pick_precision(precision, device)
    what = {  # describes the features, and is hashed into the file's name
        "network": sha256(network),
        "data": data.sha256,
        "split": split,
        "views": views,
        "transform": {"padding": data.images.shape[1] // 8, **VIEWS} if views else None,
        **({"averaged": True} if averaged else {}),
        **({"precision": precision} if precision != "float32" else {}),
        "code": fingerprint.digest(fingerprint.reachable(__name__)),
    }
    path = cache_folder(cache) / "features" / f"{data.name}-{split}-{key_of(what)}.safetensors"
    tensors = read_known(path, what)
    if tensors is None:
        with autocast(precision, device):
            tensors = _compute(network, data, what, device)
        _refuse_bad_numbers(tensors, data, split, network)
        write_known(path, tensors, what)
    labels = torch.from_numpy(data.split_labels(split))
    return Features(tensors["features"], tensors["views"], labels, data.splits[split], features_hash(tensors))


@torch.no_grad()
def extract(
    f: nn.Module,
    images: Tensor,
    transform: Callable[[Tensor], Tensor] = as_float,
    what: str = "",
    batch: int = BATCH,
) -> Tensor:
    """Compute features float32 `[N, d]` of images, with f in evaluation mode.

    Args:
        f: the network.
        images: uint8 `[N, H, W, 3]`, on any device.
        transform: turns a batch on f's device into floats `[B, 3, H, W]` in [0, 1].
        what: title of a progress bar; by default there is none.
        batch: number of images at a time.
    """
    device = next(f.parameters()).device
    batches = images.split(batch)
    numbers = steps(len(batches), what, "part") if what else range(len(batches))
    was_training = f.training
    f.eval()
    with exact_convolutions():
        features = [f(transform(batches[number].to(device))).float() for number in numbers]
    f.train(was_training)
    return torch.cat(features)


def encode(network: nn.Module, images: np.ndarray) -> Tensor:
    """Compute features float32 `[n, d]`, on the CPU, of images uint8 `[n, H, W, 3]`, by a network on any device.

    Raise a ValueError if the images are not of this form or not of the size that the network takes.
    """
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise ValueError(f"images: expected uint8 [n, H, W, 3], got {images.dtype} {[*images.shape]}")
    size = getattr(network, "image_size", None)
    if size and images.shape[1:3] != (size, size):
        raise ValueError(f"this network takes images of {size} x {size} pixels, got {images.shape[1:3]}: resize them")
    return extract(network, torch.tensor(images), batch=batch_of(network, images.shape[1])).cpu()


def batch_of(network: nn.Module, size: int) -> int:
    """Choose a batch size for images of `size` x `size` pixels whose activations fit the device's fast memory."""
    few = max(1, BATCH_PIXELS // size**2)
    return few if next(network.parameters()).device.type == "cpu" else 16 * few


def split_tensors(data: ImageSet, split: str) -> tuple[Tensor, Tensor]:
    """Return the images uint8 `[n, H, W, 3]` and the labels int64 `[n]` of a split."""
    return torch.from_numpy(data.images[data.rows(split)]), torch.from_numpy(data.split_labels(split))


def _compute(network: Path, data: ImageSet, what: dict[str, Any], device: torch.device) -> dict[str, Tensor]:
    """Compute the features, and those of the augmented views, that `what` describes."""
    f, _ = load_network(network)
    if "averaged" in what:
        f = Averaged(f)
    f = f.to(device, memory_format=torch.channels_last)
    images, _ = split_tensors(data, what["split"])
    title = f"features of {data.name} {what['split']}"
    # half the batch of larger networks: the first maps of the networks that are pretrained here have full size
    features = extract(f, images, what=title, batch=max(1, batch_of(f, images.shape[1]) // 2)).cpu()
    views = features.new_empty(what["views"], *features.shape)
    for number in range(what["views"]):
        views[number] = extract(f, images, _random(number, device, **what["transform"]), f"{title}, view {number + 1}")
    return {"features": features, "views": views}


def _random(number: int, device: torch.device, padding: int, jitter: float, seed: int) -> Callable[[Tensor], Tensor]:
    """Return the transform of one view, which has its own random numbers."""
    generator = torch.Generator(device).manual_seed(combine(seed, number))
    return lambda batch: augment(batch, draw(len(batch), padding, jitter, generator), padding)


def _refuse_bad_numbers(tensors: dict[str, Tensor], data: ImageSet, split: str, network: Path) -> None:
    """Raise a ValueError if any feature is NaN or infinite."""
    finite = tensors["features"].isfinite().all(1) & tensors["views"].isfinite().all(2).all(0)
    if not finite.all():
        first = int((~finite).nonzero()[0])
        name = data.classes[data.labels[data.rows(split)[first]]]
        raise ValueError(
            f"{network} gives NaN or infinite features for {int((~finite).sum())} of {len(finite)} images of "
            f"{data.name} {split!r}, first for row {first} (class {name}): pretrain it again with a smaller peak_lr"
        )


def read_known(path: Path, what: dict[str, Any]) -> dict[str, Tensor] | None:
    """Return the tensors in a file, or None if it is missing, damaged or described by other values than `what`."""
    try:
        tensors, about = read_tensors(path)
    except (FileNotFoundError, ValueError):
        return None
    seal = _seal(tensors)
    older = {"sha256": seal["sha256"]}  # files of earlier versions have no shapes
    return tensors if about in (what | seal, what | older) else None


def write_known(path: Path, tensors: dict[str, Tensor], what: dict[str, Any]) -> None:
    """Write tensors and their description `what` so that `read_known` finds them."""
    write_tensors(path, tensors, what | _seal(tensors))


def _seal(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the values that tell a damaged file. The hash covers numbers alone, so shapes stand beside it."""
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in tensors.items()}
    return {"sha256": features_hash(tensors), "shapes": shapes}


def features_hash(tensors: dict[str, Tensor]) -> str:
    """Return the sha256 of all numbers, in the order of the tensors' names."""
    return hash_of(tensors[name] for name in sorted(tensors))
