"""Images through a frozen network, few at a time: memory does not grow with their number."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.vision.augment import as_float
from sibcore.vision.backbones import exact_convolutions

BATCH_PIXELS = 1 << 17  # of a batch: two images of 224 x 224, whose activations fit a CPU's cache


@torch.inference_mode()
def encode(network: nn.Module, images: np.ndarray) -> Tensor:
    """Features float32 [n, d], on the CPU, of images uint8 [n, H, W, 3], by a network on any device."""
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise ValueError(f"images: expected uint8 [n, H, W, 3], got {images.dtype} {[*images.shape]}")
    size = getattr(network, "image_size", None)
    if size and images.shape[1:3] != (size, size):
        raise ValueError(f"this network takes images of {size} x {size} pixels, got {images.shape[1:3]}: resize them")
    device = next(network.parameters()).device
    batch = max(1, BATCH_PIXELS // (images.shape[1] * images.shape[2]))
    if device.type != "cpu":
        batch *= 16
    with exact_convolutions():
        parts = [
            network(as_float(torch.tensor(images[start : start + batch]).to(device))).float().cpu()
            for start in range(0, len(images), batch)
        ]
    return torch.cat(parts)
