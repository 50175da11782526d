"""Features that come with the project, so that few-shot results need neither images nor a network.

`results/features/<data>-<backbone>.safetensors` holds one byte per number: code c of dimension j stands for
low_j + step_j c, with low_j and step_j chosen so that the 256 codes span what dimension j takes on in the whole set.
The header says which images and which network the features are of.

    make(data, pretrained_network(data, "conv4-64"))      makes the file anew, from the images of `data`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.files import pack, read_tensors, sha256
from sibcore.vision.backbones import load_network
from sibcore.vision.features import Features, extract, features_hash
from sibrepro import paths
from sibrepro.facts import checksums, provenance

LEVELS = 255


def file(dataset: str, backbone: str) -> Path:
    """Where the features of an image set under a backbone are, or would be."""
    return paths.root() / "results" / "features" / f"{dataset}-{backbone}.safetensors"


def existing(dataset: str, backbone: str) -> Path:
    """As `file`, checked against its hash, or an error that says what there is."""
    path = file(dataset, backbone)
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.safetensors"))) or "none here"
        raise FileNotFoundError(
            f"no features of {dataset} under {backbone} come with the project (there are: {there}); take them from "
            "images instead (features='images'), or use a checkout of the project"
        )
    return checksums.checked(path)


def load(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[str, Features]:
    """Features by split."""
    features, numbers, about = read(dataset, backbone)
    return {split: _split(features, numbers["labels"], about, split) for split in about["splits"]}


def read(dataset: str, backbone: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote."""
    tensors, about = read_tensors(existing(dataset, backbone))
    features = dequantise(*(tensors.pop(name) for name in ("codes", "low", "step")))
    return features, {name: values.long() for name, values in tensors.items()}, about


def about(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[str, Any]:
    """What the file says of its making."""
    return read_tensors(existing(dataset, backbone))[1]


def make(data: ImageSet, network: Path) -> Path:
    """Send every image of `data` through `network` and write the file."""
    f, known = load_network(network)
    f = f.to(pick_device(), memory_format=torch.channels_last)
    features = extract(f, torch.from_numpy(np.array(data.images)), what=f"features of {data.name}").cpu()
    labels = {"labels": torch.from_numpy(data.labels)}
    origin = {"classes": data.classes, "splits": data.splits, "data": data.sha256, "network": sha256(network)}
    return write(features, labels, dataset=data.name, backbone=known["backbone"], **origin)


def write(features: Tensor, numbers: dict[str, Tensor], **about: Any) -> Path:
    """Features [..., d] as bytes, and small whole numbers beside them."""
    codes, low, step = quantise(features.flatten(0, -2))
    tensors = {"codes": codes.view(features.shape), "low": low, "step": step}
    tensors |= {name: values.to(torch.uint8) for name, values in numbers.items()}
    path = file(about["dataset"], about["backbone"])
    checksums.write(path, pack(tensors, about | {"provenance": provenance.collect({}, 0)}))
    return path


def directions(features: Tensor, dim: int) -> Tensor:
    """The first right singular vectors [d, dim] of features [N, d], not centred."""
    vectors = torch.linalg.eigh((features.mT @ features).double())[1]  # by ascending eigenvalues
    return vectors[:, -dim:].flip(1).to(features)


def quantise(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N, d] -> codes uint8 [N, d], low [d], step [d]; the error is at most step / 2."""
    low, high = features.aminmax(dim=0)
    step = (high - low) / LEVELS
    codes = ((features - low) / step.clamp_min(torch.finfo(step.dtype).tiny)).round().to(torch.uint8)
    return codes, low, step


def dequantise(codes: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """codes [N, d] -> features float32 [N, d]"""
    return torch.addcmul(low, codes.to(step.dtype), step)


def _split(features: Tensor, labels: Tensor, about: dict[str, Any], split: str) -> Features:
    """The rows of the classes of a split, labelled by their place among them, as `ImageSet.split_labels` does."""
    place = torch.full((len(about["classes"]),), -1)
    place[[about["classes"].index(name) for name in about["splits"][split]]] = torch.arange(len(about["splits"][split]))
    rows = place[labels] >= 0
    chosen, none = features[rows], features.new_empty(0, int(rows.sum()), features.shape[1])
    sha256 = features_hash({"features": chosen, "views": none})
    return Features(chosen, none, place[labels][rows], tuple(about["splits"][split]), sha256)
