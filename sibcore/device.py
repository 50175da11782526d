"""Which device to compute on."""

from __future__ import annotations

import os

import torch


def pick_device(name: str | None = None) -> torch.device:
    """`name`, else the environment variable `SIB_DEVICE`, else the best of cuda, mps and cpu that is there."""
    name = name or os.environ.get("SIB_DEVICE")
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"SIB_DEVICE={name!r} is not a device: expected cpu, cuda, cuda:0, cuda:1, ... or mps"
        ) from None
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": _has_mps()}
    if not usable.get(device.type, True):
        have = ", ".join(kind for kind, there in usable.items() if there)
        raise ValueError(f"SIB_DEVICE={name!r} is not usable with torch {torch.__version__} here: usable are {have}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"SIB_DEVICE={name!r}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    return device


def float64_or_best(device: torch.device) -> torch.dtype:
    """float64 where the device has it (mps does not)."""
    return torch.float32 if device.type == "mps" else torch.float64


def _has_mps() -> bool:
    return torch.backends.mps.is_available()
