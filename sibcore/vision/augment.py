"""Random crop, flip and colour jitter of a whole batch at once, on whatever device it is on.

The random numbers are drawn first (`draw`) and applied later (`augment`), so that processes which share a batch can
draw the same numbers and each apply its own part. Every image has its own numbers.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

LUMA = (0.299, 0.587, 0.114)  # grey of an RGB colour (ITU-R 601)
BRIGHTNESS, CONTRAST, SATURATION = range(3)


@dataclasses.dataclass(frozen=True)
class Draw:
    """The random numbers of one batch: shift int [B, 2], flip bool [B], factor [B, 3], order int [B, 3]."""

    shift: Tensor
    flip: Tensor
    factor: Tensor
    order: Tensor

    def __getitem__(self, part: slice) -> Draw:
        return Draw(self.shift[part], self.flip[part], self.factor[part], self.order[part])


def draw(batch: int, padding: int, jitter: float, generator: torch.Generator) -> Draw:
    """Shifts up to `padding` pixels each way, a fair coin for the flip, jitter factors uniform in 1 ± `jitter`."""
    on = {"generator": generator, "device": generator.device}
    return Draw(
        shift=torch.randint(0, 2 * padding + 1, (batch, 2), **on),
        flip=torch.rand(batch, **on) < 0.5,
        factor=1 + jitter * (2 * torch.rand(batch, 3, **on) - 1),
        order=torch.rand(batch, 3, **on).argsort(1),
    )


def augment(images: Tensor, draw: Draw, padding: int) -> Tensor:
    """uint8 [B, H, W, 3] -> float [B, 3, H, W] in [0, 1], in channels-last memory."""
    return jitter(as_float(crop_and_flip(images, draw, padding)), draw)


def resize(images: Tensor, size: int, batch: int = 512) -> Tensor:
    """uint8 [N, H, W, 3] -> uint8 [N, size, size, 3], in batches to save memory."""
    if size == images.shape[1]:
        return images
    small = images.new_empty(len(images), size, size, 3)
    for part, few in zip(small.split(batch), images.split(batch), strict=True):
        resized = F.interpolate(255 * as_float(few), (size, size), mode="bilinear", antialias=True)
        part.copy_(resized.permute(0, 2, 3, 1).round().clamp(0, 255))
    return small


def as_float(images: Tensor) -> Tensor:
    """uint8 [B, H, W, 3] -> float [B, 3, H, W] in [0, 1]; the memory stays as it was, that is channels-last."""
    return images.permute(0, 3, 1, 2) / 255


def crop_and_flip(images: Tensor, draw: Draw, padding: int) -> Tensor:
    """Pad with black, cut out a window of the old size at `draw.shift`, mirror where `draw.flip`. [B, H, W, 3]."""
    batch, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, padding, padding, padding, padding))
    y = torch.arange(height, device=images.device)
    x = torch.arange(width, device=images.device)
    x = torch.where(draw.flip[:, None], x.flip(0), x)  # [B, W]
    rows = draw.shift[:, :1] + y  # [B, H]
    columns = draw.shift[:, 1:] + x
    each = torch.arange(batch, device=images.device)
    return padded[each[:, None, None], rows[:, :, None], columns[:, None, :]]


def jitter(images: Tensor, draw: Draw) -> Tensor:
    """Brightness, contrast and saturation, in each image's own order. [B, 3, H, W] in [0, 1].

    Each of the three blends an image with something plainer: black, its mean grey, its own grey version.
    """
    luma = images.new_tensor(LUMA)[:, None, None]
    for place in range(3):
        kind = draw.order[:, place]
        factor = draw.factor.gather(1, kind[:, None])[:, :, None, None]
        kind = kind[:, None, None, None]
        grey = (images * luma).sum(1, keepdim=True)
        plainer = torch.where(kind == CONTRAST, grey.mean((2, 3), keepdim=True), grey) * (kind != BRIGHTNESS)
        images = torch.lerp(plainer.expand_as(images), images, factor).clamp(0, 1)
    return images
