"""Four small made-up domains in place of PACS: features of images in four rotations."""

from __future__ import annotations

import torch

from sibrepro.studies.pacs.experiment import Adaptation
from sibrepro.studies.pacs.rotations import Rotations

NAMES = ("art", "cartoon", "photo", "sketch")
IMAGES, DIM = 45, 8  # images of each domain, size of their features


def domains(seed: int = 0) -> Rotations:
    """Return Gaussian features `[4, N, d]` of three classes, which each domain and each rotation shifts."""
    generator = torch.Generator().manual_seed(seed)
    of_class, of_domain, of_rotation = (torch.randn(count, DIM, generator=generator) for count in (3, 4, 4))
    labels, number = torch.arange(4 * IMAGES) % 3, torch.arange(4).repeat_interleave(IMAGES)
    noise = torch.randn(4, 4 * IMAGES, DIM, generator=generator)
    inputs = 2 * of_class[labels] + 0.5 * of_domain[number] + 1.5 * of_rotation[:, None] + 0.5 * noise
    return Rotations(inputs, labels, number, ("dog", "horse", "house"), NAMES, {"domains": str(seed)})


def setting(**changes: object) -> Adaptation:
    """Return the settings of a short adaptation to "sketch", changed as asked."""
    return Adaptation(**({"target": "sketch", "steps": 20, "batch": 8, "eta": 0.01, "K": 2} | changes))
