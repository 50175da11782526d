"""PACS as features that come with the project: all images in four turns, without pictures or a network.

`results/features/pacs-<backbone>.safetensors` holds unit features, projected to their first singular directions (which
keeps inner products, all that a cosine classifier sees, as well as that many numbers can) and quantised to a byte each.

    sib ship --data pacs --backbone efficientnet-lite0      makes the file anew, from pixels
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sibcore.files import pack, read_tensors
from sibcore.sib import unit
from sibcore.vision.rotations import Rotations
from sibrepro.facts import checksums, provenance
from sibrepro.few_shot import shipped

DIM = 256  # 10.2 MB


def make(bank: Rotations, dataset: str, backbone: str, size: int, dim: int = DIM) -> Path:
    """Write the file from a bank of features [4, N, d]."""
    features = unit(bank.inputs)
    projected = features @ directions(features[0], dim)
    codes, low, step = shipped.quantise(projected.flatten(0, 1))
    tensors = {"codes": codes.unflatten(0, projected.shape[:2]), "low": low, "step": step}
    tensors |= {"labels": bank.labels.to(torch.uint8), "domains": bank.domains.to(torch.uint8)}
    origin = {
        "dataset": dataset,
        "backbone": backbone,
        "size": size,
        "classes": bank.classes,
        "domain_names": bank.domain_names,
        "hashes": bank.hashes,
        "kept": projected.square().sum(-1).mean().item(),  # of the squared length of a feature
        "provenance": provenance.collect({}, 0),
    }
    path = shipped.file(dataset, backbone)
    checksums.write(path, pack(tensors, origin))
    return path


def directions(features: Tensor, dim: int) -> Tensor:
    """The first right singular vectors [d, dim] of features [N, d], not centred."""
    vectors = torch.linalg.eigh((features.mT @ features).double())[1]  # by ascending eigenvalues
    return vectors[:, -dim:].flip(1).to(features)


def load(dataset: str = "pacs", backbone: str = "efficientnet-lite0") -> Rotations:
    """The bank in the file."""
    path = shipped.existing(dataset, backbone)
    tensors, known = read_tensors(path)
    return Rotations(
        inputs=shipped.dequantise(*(tensors[name] for name in ("codes", "low", "step"))),
        labels=tensors["labels"].long(),
        domains=tensors["domains"].long(),
        classes=tuple(known["classes"]),
        domain_names=tuple(known["domain_names"]),
        hashes=known["hashes"],
    )


def about(dataset: str = "pacs", backbone: str = "efficientnet-lite0") -> dict[str, Any]:
    """What the file says of its making."""
    return read_tensors(shipped.existing(dataset, backbone))[1]
