"""Small Gaussian tasks of unit features for the tests of the baselines, and a training that is stopped."""

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
    """Support [B, m, d], its labels [B, m], query [B, n, d] and its labels; counts may differ by class."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(batch, ways, dim, generator=g, dtype=torch.float64).abs()
    parts = []
    for counts in (shots, queries):
        labels = torch.arange(ways).repeat_interleave(torch.tensor(counts).expand(ways)).expand(batch, -1)
        noise = torch.randn(batch, labels.shape[1], dim, generator=g, dtype=torch.float64)
        points = centres.gather(1, labels.unsqueeze(-1).expand(-1, -1, dim)) + spread * noise
        parts += [unit(points.relu()).to(dtype), labels]
    return tuple(parts)


def stop_in_step(step: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt the first meta-training that comes to this step; returns the steps at which tasks begin to be drawn."""
    begun, stopped, batches = [], [], EpisodeSampler.batches

    def until_the_step(self, first, last, *arguments):
        begun.append(first)
        for place, tasks in enumerate(batches(self, first, last, *arguments), first):
            if place == step and not stopped:
                stopped.append(place)
                raise KeyboardInterrupt
            yield tasks

    monkeypatch.setattr(EpisodeSampler, "batches", until_the_step)
    return begun
