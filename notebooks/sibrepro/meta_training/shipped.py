"""The features that the repository contains, so that few-shot results need neither images nor a network.

`results/features/<data>-<backbone>.safetensors` holds one byte per number. Code c of dimension j stands for
low_j + step_j c, where low_j and step_j are chosen so that the 256 codes span all values of dimension j. The header
says which images and which network the features were computed from.

    make(data, pretrained_network(data, "conv4-64"))      computes the file again from the images of `data`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sibcore.datasets.base import ImageSet
from sibcore.device import Precision, pick_device, pick_precision
from sibcore.files import pack, read_tensors, sha256
from sibcore.vision.backbones import load_network
from sibcore.vision.features import Features, feature_bank
from sibcore.zoo.banks import read_banks
from sibrepro import paths
from sibrepro.facts import checksums, provenance

LEVELS = 255  # The largest code of one byte.


def file(dataset: str, backbone: str) -> Path:
    """Return the path of the features of an image set under a backbone, whether the file exists or not."""
    return paths.root() / "results" / "features" / f"{dataset}-{backbone}.safetensors"


def existing(dataset: str, backbone: str) -> Path:
    """Return the path of a file of features that exists and matches its published checksum.

    Raise FileNotFoundError if there is none, and ValueError if it is damaged.
    """
    path = file(dataset, backbone)
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.safetensors"))) or "none here"
        raise FileNotFoundError(
            f"no features of {dataset} under {backbone} come with the project (there are: {there}); take them from "
            "images instead (features='images'), or use a checkout of the project"
        )
    return checksums.checked(path)


def load(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[str, Features]:
    """Return the features by split."""
    return read_banks(existing(dataset, backbone))


def about(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> dict[str, Any]:
    """Return the header of the file: the classes, the splits, and the hashes of the images and of the network."""
    return read_tensors(existing(dataset, backbone))[1]


def make(data: ImageSet, network: Path, dim: int = 0, precision: Precision = "float32") -> Path:
    """Compute the features of all images of `data` under the network in a file, write them and return their path.

    Args:
        data: the image set.
        network: the file of the feature network.
        dim: number of principal directions of the training features that are kept; 0 for the features as they are.
        precision: of the network's convolutions.
    """
    precision = pick_precision(precision, pick_device())
    _, known = load_network(network)
    banks = {split: feature_bank(network, data, split, precision=precision).features for split in data.splits}
    features = torch.empty(len(data.labels), banks["train"].shape[1])
    for split, bank in banks.items():
        features[torch.as_tensor(data.rows(split))] = bank
    if dim:
        features = features @ directions(banks["train"], dim)
    codes, low, step = quantise(features)
    labels = torch.from_numpy(data.labels).to(torch.uint8)
    about = {
        "dataset": data.name,
        "backbone": known["backbone"],
        "classes": data.classes,
        "splits": data.splits,
        "data": data.sha256,
        "network": sha256(network),
        "provenance": provenance.collect({}, 0),
        **({"dim": dim} if dim else {}),
        **({"precision": precision} if precision != "float32" else {}),
    }
    path = file(data.name, known["backbone"])
    checksums.write(path, pack({"codes": codes, "low": low, "step": step, "labels": labels}, about))
    return path


def directions(features: Tensor, dim: int) -> Tensor:
    """Return the first right singular vectors `[d, dim]` of features `[N, d]`, which are not centred."""
    vectors = torch.linalg.eigh((features.mT @ features).double())[1]  # In ascending order of eigenvalues.
    return vectors[:, -dim:].flip(1).to(features)


def quantise(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Store features `[N, d]` as one byte per number, with an error of at most step / 2.

    Returns:
        codes, uint8 `[N, d]`, and for each dimension `low` and `step`, float32 `[d]`.
    """
    low, high = features.aminmax(dim=0)
    step = (high - low) / LEVELS
    codes = ((features - low) / step.clamp_min(torch.finfo(step.dtype).tiny)).round().to(torch.uint8)
    return codes, low, step
