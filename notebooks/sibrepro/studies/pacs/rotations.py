"""Every image of a set under the four rotations, as seen by a network with ImageNet's weights; kept on disk in chunks.

    <cache>/features/<data>-<network>-<part>-<key>/00000.safetensors, 00256.safetensors, ...

The key is the hash of the network's weights, the images' content and the part of the network, and each file has a hash
of its numbers, as in `sibcore.vision.features`. An extraction that was stopped goes on after its last whole chunk.
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

CHUNK = 256  # images a file
BATCH = 4  # images at a time, each in four turns: activations that fit a CPU's cache are twice as fast
Part = Literal["features", "activations"]


@dataclasses.dataclass(frozen=True, eq=False)
class Rotations:
    """An image set under the four rotations.

    inputs: [4, N, ...]: float32 features [4, N, d], or float16 activations [4, N, c, h, w] before the upper part of f
    labels, domains: int64 [N], indices into `classes` and `domain_names`
    hashes: of the images and of the network, for records
    """

    inputs: Tensor
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    hashes: dict[str, str]

    def take(self, rows: Tensor, turns: Tensor) -> Tensor:
        """Image rows[i, ...] in the turn turns[i, ...], [*rows.shape, ...]."""
        flat = self.inputs.flatten(0, 1)
        return flat.index_select(0, (turns * self.inputs.shape[1] + rows).flatten()).unflatten(0, rows.shape)


def rotations(
    data: ImageSet,
    backbone: str = "efficientnet-lite0",
    part: Part = "features",
    device: torch.device | None = None,
    cache: Path | None = None,
) -> Rotations:
    """`data` through the whole of a network ("features"), or through its lower part ("activations").

    From the cache or computed now, with a line on progress and images per second.
    """
    network = imagenet_network(backbone, data.images.shape[1])
    if part == "activations":
        network = halves(network)[0]
    inputs = extract(network, data, backbone, part, device or pick_device(), cache_folder(cache))
    return Rotations(
        inputs=inputs,
        labels=torch.from_numpy(data.labels),
        domains=torch.from_numpy(data.domains),
        classes=data.classes,
        domain_names=data.domain_names,
        hashes=hashes(data, network),
    )


def extract(network: nn.Module, data: ImageSet, name: str, part: Part, device: torch.device, cache: Path) -> Tensor:
    """What `network` gives for every image in every turn, [4, N, ...]; half precision unless it is features."""
    known = hashes(data, network) | {"part": part}
    folder = cache / "features" / f"{data.name}-{name}-{part}-{key_of(known)}"
    network = network.to(device, memory_format=torch.channels_last)
    images, chunks = len(data.images), []
    with meter(TURNS * images, f"{name}'s {part} of {data.name} in four turns", " images") as bar:
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
                bar.initial += TURNS * len(pictures)  # there before: not counted as speed
                bar.n = bar.initial
            chunks.append(found["inputs"])
    return torch.cat(chunks, 1)


def hashes(data: ImageSet, network: nn.Module) -> dict[str, str]:
    """What the inputs are made of."""
    return {data.name: data.sha256, "network": features_hash(network.state_dict())}


@torch.inference_mode()
def _chunk(network: nn.Module, pictures: np.ndarray, part: Part, device: torch.device) -> Tensor:
    """uint8 [n, H, W, 3] -> [4, n, ...]"""
    kind = torch.float32 if part == "features" else torch.float16
    done = []
    with exact_convolutions():
        for start in range(0, len(pictures), BATCH):
            turned = turn(torch.tensor(pictures[start : start + BATCH]).to(device))
            output = network(as_float(turned.flatten(0, 1))).unflatten(0, turned.shape[:2])
            done.append(output.to("cpu", kind))
    return torch.cat(done, 1).contiguous()


def turn(images: Tensor) -> Tensor:
    """Images [n, H, W, 3] by 0, 90, 180 and 270 degrees anticlockwise, [4, n, H, W, 3]."""
    return torch.stack([images.rot90(turns, (1, 2)) for turns in range(TURNS)])


def _refuse_bad_numbers(inputs: Tensor, start: int, data: ImageSet, name: str) -> None:
    bad = ~inputs.flatten(2).isfinite().all(2).all(0)
    if bad.any():
        row = start + int(bad.nonzero()[0])
        place = f"{data.domain_names[data.domains[row]]}/{data.classes[data.labels[row]]}"
        raise ValueError(f"{name} gives NaN or infinity for image {row} of {data.name} ({place})")


def halves(network: nn.Sequential) -> tuple[nn.Sequential, nn.Sequential]:
    """A network of `imagenet_network` as lower and upper part, the one to freeze and the one to train.

    The upper part is the last stage of ResNet-18, three quarters of its weights; of EfficientNet-Lite0 it is the last
    block and the head, a third of its weights but an eighth of its work, which makes training possible on a CPU.
    """
    f = network.backbone
    if hasattr(f, "layer4"):  # ResNet-18
        lower, upper = [f.conv1, f.bn1, f.relu, f.maxpool, f.layer1, f.layer2, f.layer3], [f.layer4, f.avgpool]
    else:  # EfficientNet-Lite0
        lower = [f._conv_stem, f._bn0, f._swish, *f._blocks[:-1]]
        upper = [f._blocks[-1], f._conv_head, f._bn1, f._swish, f._avg_pooling]
    return nn.Sequential(network.normalise, *lower), nn.Sequential(*upper, nn.Flatten())
