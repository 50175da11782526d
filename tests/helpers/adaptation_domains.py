"""Four small domains of features in four turns, for tests."""

from __future__ import annotations

import torch

from sibrepro.studies.pacs.experiment import Adaptation
from sibrepro.studies.pacs.rotations import Rotations

NAMES = ("art", "cartoon", "photo", "sketch")


def domains(images: int = 45, dim: int = 8, seed: int = 0) -> Rotations:
    """Three classes; a domain shifts all features, a turn too."""
    generator = torch.Generator().manual_seed(seed)
    of_class, of_domain, of_turn = (torch.randn(n, dim, generator=generator) for n in (3, 4, 4))
    labels, number = torch.arange(4 * images) % 3, torch.arange(4).repeat_interleave(images)
    noise = torch.randn(4, 4 * images, dim, generator=generator)
    inputs = 2 * of_class[labels] + 0.5 * of_domain[number] + 1.5 * of_turn[:, None] + 0.5 * noise
    return Rotations(inputs, labels, number, ("dog", "horse", "house"), NAMES, {"domains": str(seed)})


def setting(**changes: object) -> Adaptation:
    return Adaptation(**({"target": "sketch", "steps": 20, "batch": 8, "eta": 0.01, "K": 2} | changes))
