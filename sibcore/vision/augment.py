"""Random crop, flip and colour jitter of a whole batch at once, on the device where the batch is.

Random numbers are drawn first (`draw`) and applied later (`augment`). Processes that share a batch all draw the same
numbers, and each applies its own part of them. Every image has its own numbers.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R 601)
BRIGHTNESS, CONTRAST, SATURATION = range(3)  # the three changes of colour, as they are numbered in `Draw`


@dataclasses.dataclass(frozen=True)
class Draw:
    """The random numbers of one batch of B images."""

    shift: Tensor  # int [B, 2]: top and left of the window that is cut out
    flip: Tensor  # bool [B]: whether the image is mirrored
    factor: Tensor  # [B, 3]: strength of brightness, contrast and saturation
    order: Tensor  # int [B, 3]: the order in which the three are applied

    def __getitem__(self, part: slice) -> Draw:
        return Draw(self.shift[part], self.flip[part], self.factor[part], self.order[part])


def draw(batch: int, padding: int, jitter: float, generator: torch.Generator) -> Draw:
    """Draw the random numbers of one batch.

    Args:
        batch: number of images.
        padding: the largest shift of the window, in pixels each way.
        jitter: factors are uniform in 1 ± `jitter`.
        generator: where the numbers come from; they are on its device.
    """
    on = {"generator": generator, "device": generator.device}
    return Draw(
        shift=torch.randint(0, 2 * padding + 1, (batch, 2), **on),
        flip=torch.rand(batch, **on) < 0.5,
        factor=1 + jitter * (2 * torch.rand(batch, 3, **on) - 1),
        order=torch.rand(batch, 3, **on).argsort(1),
    )


def augment(images: Tensor, draw: Draw, padding: int) -> Tensor:
    """Crop, flip and jitter: uint8 `[B, H, W, 3]` -> float `[B, 3, H, W]` in [0, 1], in channels-last memory."""
    return jitter(as_float(crop_and_flip(images, draw, padding)), draw)


def resize(images: Tensor, size: int, batch: int = 512) -> Tensor:
    """Resize images uint8 `[N, H, W, 3]` to `[N, size, size, 3]`, in batches to save memory."""
    if size == images.shape[1]:
        return images
    small = images.new_empty(len(images), size, size, 3)
    for part, few in zip(small.split(batch), images.split(batch), strict=True):
        resized = F.interpolate(255 * as_float(few), (size, size), mode="bilinear", antialias=True)
        part.copy_(resized.permute(0, 2, 3, 1).round().clamp(0, 255))
    return small


def as_float(images: Tensor) -> Tensor:
    """Turn uint8 `[B, H, W, 3]` into float `[B, 3, H, W]` in [0, 1], in channels-last memory."""
    return images.permute(0, 3, 1, 2) / 255


def crop_and_flip(images: Tensor, draw: Draw, padding: int) -> Tensor:
    """Pad with black, cut out a window of the old size at `draw.shift`, and mirror it where `draw.flip`.

    Args:
        images: `[B, H, W, 3]`.
        draw: the random numbers of the batch.
        padding: pixels on each side.
    """
    batch, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, padding, padding, padding, padding))
    image, y, x = (torch.arange(n, device=images.device) for n in (batch, height, width))
    x = torch.where(draw.flip[:, None], x.flip(0), x)  # [B, W]
    rows = draw.shift[:, :1] + y  # [B, H]
    columns = draw.shift[:, 1:] + x
    return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]


def jitter(images: Tensor, draw: Draw) -> Tensor:
    """Change brightness, contrast and saturation of images `[B, 3, H, W]` in [0, 1], in each image's own order.

    Each of the three blends the image with a plainer one: black, its mean grey, or its own grey version.
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
