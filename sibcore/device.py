"""Which device to compute on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch


def pick_device(name: str | None = None) -> torch.device:
    """`name`, else the environment variable `SIB_DEVICE`, else the best of cuda, mps and cpu that is there."""
    name = name or os.environ.get("SIB_DEVICE")
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if not name:
        return torch.device(next(kind for kind, there in usable.items() if there))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"SIB_DEVICE={name!r} is not a device: expected cpu, cuda, cuda:0, cuda:1, ... or mps"
        ) from None
    if not usable.get(device.type, True):
        have = ", ".join(kind for kind, there in usable.items() if there)
        raise ValueError(f"SIB_DEVICE={name!r} is not usable with torch {torch.__version__} here: usable are {have}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"SIB_DEVICE={name!r}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    return device


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with this many CPU threads inside the block: small tensors lose more to waking threads than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
