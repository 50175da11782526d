"""PACS as features that come with the project: all images in four turns, without pictures or a network.

`results/features/pacs-<backbone>.safetensors` holds unit features, projected to their first singular directions (which
keeps inner products, all that a cosine classifier sees, as well as that many numbers can) and quantised to a byte each.

    make(rotations(datasets.load("pacs", size=160), "efficientnet-lite0"), "pacs", "efficientnet-lite0", 160)

makes the file anew, from pixels.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sibcore.sib import unit
from sibcore.vision.rotations import Rotations
from sibrepro.few_shot import shipped

DIM = 256  # 10.2 MB


def make(bank: Rotations, dataset: str, backbone: str, size: int, dim: int = DIM) -> Path:
    """Write the file from a bank of features [4, N, d]."""
    features = unit(bank.inputs)
    projected = features @ directions(features[0], dim)
    origin = {"dataset": dataset, "backbone": backbone, "size": size, "hashes": bank.hashes}
    origin |= {"classes": bank.classes, "domain_names": bank.domain_names}
    origin["kept"] = projected.square().sum(-1).mean().item()  # of the squared length of a feature
    return shipped.write(projected, {"labels": bank.labels, "domains": bank.domains}, **origin)


def directions(features: Tensor, dim: int) -> Tensor:
    """The first right singular vectors [d, dim] of features [N, d], not centred."""
    vectors = torch.linalg.eigh((features.mT @ features).double())[1]  # by ascending eigenvalues
    return vectors[:, -dim:].flip(1).to(features)


def load(dataset: str = "pacs", backbone: str = "efficientnet-lite0") -> Rotations:
    """The bank in the file."""
    inputs, numbers, about = shipped.read(dataset, backbone)
    names = {name: tuple(about[name]) for name in ("classes", "domain_names")}
    return Rotations(inputs=inputs, **numbers, **names, hashes=about["hashes"])
