"""A finished run: its name, parameters, numbers, arrays, where they come from, and what was trained.

A run is called `<experiment>-<12 hex digits>`, a hash of its parameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Collection, Mapping
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


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has them, which knows no NaN: null is what diverged, for that is a result too."""
    diverged = {name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)}
    return {name: None if name in diverged else value for name, value in metrics.items()}


def numbers(written: Mapping[str, Any]) -> dict[str, Any]:
    """What `plain` wrote."""
    return {name: math.nan if value is None else value for name, value in written.items()}


def run_id(experiment: str, params: Any, oldest: Collection[str] = ()) -> str:
    """The same parameters give the same name, in whatever order they are written."""
    text = json.dumps(identity(params, oldest), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{experiment}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def identity(params: Any, oldest: Collection[str]) -> dict[str, Any]:
    """What a name is made of: the experiment's oldest fields, and of all later ones those that are not default.

    So an option that is added to an experiment renames none of its runs. A plain dict counts with all it holds.
    """
    values = as_dict(params)
    if not dataclasses.is_dataclass(params):
        return values
    default = {field.name: getattr(field.default, "default", field.default) for field in dataclasses.fields(params)}
    return {name: value for name, value in values.items() if name in oldest or value != default[name]}


def as_dict(params: Any) -> dict[str, Any]:
    return dataclasses.asdict(params) if dataclasses.is_dataclass(params) else dict(params)


def experiment_of(name: str) -> str:
    """The experiment of a run's id."""
    return name.rpartition("-")[0]
