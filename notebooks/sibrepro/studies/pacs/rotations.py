"""The features of every image of a set, rotated by 0, 90, 180 and 270 degrees, by a network with ImageNet's weights.

They are computed once and kept on disk in chunks:

    <cache>/features/<data>-<network>-<part>-<key>/00000.safetensors, 00256.safetensors, ...

The key is a hash of the network's weights, of the images and of the part of the network. Each file has a hash of its
numbers, as in `sibcore.vision.features`. An extraction that was stopped continues after its last complete chunk.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.adapt import TURNS
from sibcore.datasets.base import ImageSet, cache_folder
from sibcore.datasets.progress import meter
from sibcore.device import pick_device
from sibcore.files import key_of
from sibcore.vision.augment import as_float
from sibcore.vision.backbones import exact_convolutions, imagenet_network
from sibcore.vision.features import features_hash, read_known, write_known

CHUNK = 256  # images in a file
BATCH = 4  # images at a time, each under four rotations. Activations that fit a CPU's cache make it twice as fast
Part = Literal["features", "activations"]


@dataclasses.dataclass(frozen=True, eq=False)
class Rotations:
    """An image set under the four rotations.

    Attributes:
        inputs: float32 features `[4, N, d]`, or float16 activations `[4, N, c, h, w]` before the upper part of f.
        labels: int64 `[N]`, indices into `classes`.
        domains: int64 `[N]`, indices into `domain_names`.
        hashes: hashes of the images and of the network, for records.
    """

    inputs: Tensor
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    hashes: dict[str, str]

    def take(self, rows: Tensor, turns: Tensor) -> Tensor:
        """Return image rows[i, ...], rotated turns[i, ...] times by 90 degrees, `[*rows.shape, ...]`."""
        flat = self.inputs.flatten(0, 1)
        return flat.index_select(0, (turns * self.inputs.shape[1] + rows).flatten()).unflatten(0, rows.shape)

    def to(self, device: torch.device) -> Rotations:
        """Return the same images with all tensors on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("inputs", "labels", "domains")}
        return dataclasses.replace(self, **moved)


def rotations(
    data: ImageSet,
    backbone: str = "efficientnet-lite0",
    part: Part = "features",
    cache: Path | None = None,
) -> Rotations:
    """Return an image set under the four rotations as a network sees it, from the cache or computed now.

    Args:
        data: the images.
        backbone: name of the network.
        part: "features" for what the whole network says, "activations" for what its lower part says.
        cache: the cache folder, if not the usual one.
    """
    network = imagenet_network(backbone, data.images.shape[1])
    if part == "activations":
        network = halves(network)[0]
    inputs = extract(network, data, backbone, part, pick_device(), cache_folder(cache))
    labels, domains = torch.from_numpy(data.labels), torch.from_numpy(data.domains)
    return Rotations(inputs, labels, domains, data.classes, data.domain_names, hashes(data, network))


def extract(network: nn.Module, data: ImageSet, name: str, part: Part, device: torch.device, cache: Path) -> Tensor:
    """Return the outputs of `network` for every image under every rotation, and show the progress.

    Args:
        network: the whole network, or its lower part.
        data: the images.
        name: name of the network, for the cache and for messages.
        part: which of the two `network` is. Activations are kept in half precision, because they are large.
        device: where to compute.
        cache: the cache folder.

    Returns:
        float32 features or float16 activations, `[4, N, ...]`.

    Raises:
        ValueError: if the network gives NaN or infinity for an image.
    """
    known = hashes(data, network) | {"part": part}
    folder = cache / "features" / f"{data.name}-{name}-{part}-{key_of(known)}"
    network = network.to(device, memory_format=torch.channels_last)
    images, chunks = len(data.images), []
    with meter(TURNS * images, f"{name}'s {part} of {data.name} under four rotations", " images") as bar:
        for start in range(0, images, CHUNK):
            path, what = folder / f"{start:05}.safetensors", known | {"start": start}
            found = read_known(path, what)
            pictures = data.images[start : start + CHUNK]
            if found is None:
                found = {"inputs": _chunk(network, pictures, part, device)}
                _refuse_bad_numbers(found["inputs"], start, data, name)
                write_known(path, found, what)
                bar.update(TURNS * len(pictures))
            else:
                bar.initial += TURNS * len(pictures)  # images from the cache do not count for the speed
                bar.n = bar.initial
            chunks.append(found["inputs"])
    return torch.cat(chunks, 1)


def hashes(data: ImageSet, network: nn.Module) -> dict[str, str]:
    """Return the hashes of the images and of the network, which tell what features were made of."""
    return {data.name: data.sha256, "network": features_hash(network.state_dict())}


@torch.inference_mode()
def _chunk(network: nn.Module, pictures: np.ndarray, part: Part, device: torch.device) -> Tensor:
    """Return the network's outputs for a few images under all rotations, uint8 `[n, H, W, 3]` -> `[4, n, ...]`."""
    kind = torch.float32 if part == "features" else torch.float16
    done = []
    with exact_convolutions():
        for start in range(0, len(pictures), BATCH):
            rotated = rotate(torch.tensor(pictures[start : start + BATCH]).to(device))
            output = network(as_float(rotated.flatten(0, 1))).unflatten(0, rotated.shape[:2])
            done.append(output.to("cpu", kind))
    return torch.cat(done, 1).contiguous()


def rotate(images: Tensor) -> Tensor:
    """Rotate images `[n, H, W, 3]` anticlockwise by 0, 90, 180 and 270 degrees, `[4, n, H, W, 3]`."""
    return torch.stack([images.rot90(turns, (1, 2)) for turns in range(TURNS)])


def _refuse_bad_numbers(inputs: Tensor, start: int, data: ImageSet, name: str) -> None:
    """Raise a ValueError that names the first image of this chunk with NaN or infinity among its outputs."""
    bad = ~inputs.flatten(2).isfinite().all(2).all(0)
    if bad.any():
        row = start + int(bad.nonzero()[0])
        place = f"{data.domain_names[data.domains[row]]}/{data.classes[data.labels[row]]}"
        raise ValueError(f"{name} gives NaN or infinity for image {row} of {data.name} ({place})")


def halves(network: nn.Sequential) -> tuple[nn.Sequential, nn.Sequential]:
    """Split a network of `imagenet_network` into its lower part, to freeze, and its upper part, to train.

    The upper part of ResNet-18 is its last stage, which holds three quarters of its weights. The upper part of
    EfficientNet-Lite0 is its last block and the head: a third of its weights, but an eighth of its work, so that a CPU
    can train it.
    """
    f = network.backbone
    if hasattr(f, "layer4"):  # ResNet-18
        lower, upper = [f.conv1, f.bn1, f.relu, f.maxpool, f.layer1, f.layer2, f.layer3], [f.layer4, f.avgpool]
    else:  # EfficientNet-Lite0
        lower = [f._conv_stem, f._bn0, f._swish, *f._blocks[:-1]]
        upper = [f._blocks[-1], f._conv_head, f._bn1, f._swish, f._avg_pooling]
    return nn.Sequential(network.normalise, *lower), nn.Sequential(*upper, nn.Flatten())
