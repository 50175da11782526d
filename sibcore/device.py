"""The device to compute on, the precision of its convolutions, and the number of CPU threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16", "auto"]


def pick_device(name: str | None = None) -> torch.device:
    """Return the device `name`, else that of the environment variable `SIB_DEVICE`, else the fastest one there is.

    Raise a ValueError if the name is no device or if this machine does not have it.
    """
    name = name or os.environ.get("SIB_DEVICE")
    usable = ["cpu"]
    if torch.backends.mps.is_available():
        usable.insert(0, "mps")
    if torch.cuda.is_available():
        usable.insert(0, "cuda")
    if not name:
        return torch.device(usable[0])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"SIB_DEVICE={name!r} is not a device: expected cpu, cuda, cuda:0, cuda:1, ... or mps"
        ) from None
    # other kinds of device that torch knows, such as "meta", are left to torch
    if device.type in ("cuda", "mps") and device.type not in usable:
        have = ", ".join(usable)
        raise ValueError(f"SIB_DEVICE={name!r} is not usable with torch {torch.__version__} here: usable are {have}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"SIB_DEVICE={name!r}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    return device


def pick_precision(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """Return the precision to compute convolutions in.

    Args:
        precision: "float32" and "bfloat16" are returned as they are. "auto" is bfloat16 where the device multiplies it
            in hardware: on CUDA devices that support it, and on processors with AVX-512 BF16 or AMX.
        device: where to compute.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()  # processors with AMX have it, too
    return "bfloat16" if fast else "float32"


def autocast(precision: Literal["float32", "bfloat16"], device: torch.device) -> torch.autocast:
    """Return a context in which convolutions and matrix products are computed in a precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` CPU threads inside the block, and with as many as before after it.

    Small tensors lose more time to waking threads than they gain. Sums also depend on the number of threads, so a
    training that goes on uses as many as it began with.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
