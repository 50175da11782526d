"""Any number of pictures through a frozen network: `extract` in batches whose activations fit a CPU's cache."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.vision.features import extract

BATCH_PIXELS = 1 << 17  # of a batch on a CPU: two images of 224 x 224


def encode(network: nn.Module, images: np.ndarray) -> Tensor:
    """Features float32 [n, d], on the CPU, of images uint8 [n, H, W, 3], by a network on any device."""
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise ValueError(f"images: expected uint8 [n, H, W, 3], got {images.dtype} {[*images.shape]}")
    size = getattr(network, "image_size", None)
    if size and images.shape[1:3] != (size, size):
        raise ValueError(f"this network takes images of {size} x {size} pixels, got {images.shape[1:3]}: resize them")
    return extract(network, torch.tensor(images), batch=batch_of(network, images.shape[1])).cpu()


def batch_of(network: nn.Module, size: int) -> int:
    """How many images of so many pixels to take at a time."""
    few = max(1, BATCH_PIXELS // size**2)
    return few if next(network.parameters()).device.type == "cpu" else 16 * few
