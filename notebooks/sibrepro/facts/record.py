"""A finished run: parameters, numbers, arrays, where they come from, and what was trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor


class Files(Protocol):
    """What a run left besides its numbers; runs of this machine and published ones keep it differently."""

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and description of something that was trained, such as "best"."""

    def checkpoint_hash(self, name: str) -> str:
        """The sha256 of the checkpoint's file."""

    def path(self, name: str) -> Path:
        """A file of its own, such as a trained network."""


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """One run, computed here or published."""

    id: str
    version: int
    params: dict[str, Any]
    metrics: dict[str, Any]
    provenance: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    files: Files
