"""Small Gaussian episodes for the tests of the rivals, and a training that is interrupted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sibcore.episodes import EpisodeSampler
from sibcore.sib import unit


def tasks(
    batch: int = 3,
    ways: int = 4,
    shots: int | list[int] = 2,
    queries: int | list[int] = 5,
    dim: int = 12,
    spread: float = 0.6,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw episodes of unit features around a random centre for each class.

    Args:
        batch: number of episodes B.
        ways: number of classes k.
        shots: labelled examples of each class, or a number for each.
        queries: queries of each class, or a number for each.
        dim: size d of the features.
        spread: standard deviation around the centres.
        seed: of the random numbers.
        dtype: type of the features.

    Returns:
        Support features `[B, m, d]`, their labels `[B, m]`, query features `[B, n, d]` and their labels `[B, n]`.
    """
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(batch, ways, dim, generator=g, dtype=torch.float64).abs()
    parts = []
    for counts in (shots, queries):
        labels = torch.arange(ways).repeat_interleave(torch.tensor(counts).expand(ways))
        noise = torch.randn(batch, len(labels), dim, generator=g, dtype=torch.float64)
        points = centres[:, labels] + spread * noise
        parts += [unit(points.relu()).to(dtype), labels.expand(batch, -1)]
    return tuple(parts)


def stop_in_step(step: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt the first meta-training that reaches this step.

    Returns:
        A list to which each call of `EpisodeSampler.batches` adds the step that it begins with.
    """
    begun, stopped, batches = [], [], EpisodeSampler.batches

    def until_the_step(self, first, last, *arguments):
        begun.append(first)
        for place, drawn in enumerate(batches(self, first, last, *arguments), first):
            if place == step and not stopped:
                stopped.append(place)
                raise KeyboardInterrupt
            yield drawn

    monkeypatch.setattr(EpisodeSampler, "batches", until_the_step)
    return begun
