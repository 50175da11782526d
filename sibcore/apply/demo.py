"""Draw a small set of pictures on which anybody can try `sib predict`: `sib demo FOLDER`.

The pictures are drawn by this program and show nothing real. A class is a pattern, such as stripes or dots. Colours,
size, direction and noise are random and say nothing about the class.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sibcore.files import write_atomically

SIDE = 160  # in pixels
COUNTS = {"labelled": 2, "new": 15}  # pictures of each class, by folder
PERIOD = (12, 60)  # the least and the largest period of a pattern, in pixels
CONTRAST = 150  # the least difference of the two colours, summed over red, green and blue
NOISE = 25  # standard deviation of the noise, in grey levels

Plane = NDArray[np.float64]  # a coordinate of each pixel, in periods
# Each pattern says, from the coordinates u and v of all pixels, which of them get the first of two colours.
PATTERNS: dict[str, Callable[[Plane, Plane], NDArray[np.bool_]]] = {
    "bricks": lambda u, v: (2 * v % 1 > 0.15) & ((u + np.floor(2 * v) / 2) % 1 > 0.08),
    "checks": lambda u, v: (u % 1 < 0.5) ^ (v % 1 < 0.5),
    "dots": lambda u, v: np.hypot(u % 1 - 0.5, v % 1 - 0.5) < 0.33,
    "rings": lambda u, v: np.hypot(u, v) % 1 < 0.5,
    "stripes": lambda u, v: u % 1 < 0.5,
    "zigzags": lambda u, v: (u + np.abs(v % 1 - 0.5)) % 1 < 0.5,
}


def draw_set(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Draw pictures of each class into `labelled/<class>/` and `new/<class>/`.

    Args:
        folder: where these two folders go. It must be empty, or not exist yet.
        seed: the same seed gives the same pictures.

    Returns:
        The paths of the two folders.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder: name a new one, such as demo")
    rng = np.random.default_rng(seed)
    for part, count in COUNTS.items():
        for name in PATTERNS:
            for number in range(1, count + 1):
                content = io.BytesIO()
                Image.fromarray(draw(name, rng)).save(content, "JPEG", quality=90)
                write_atomically(folder / part / name / f"{number:02}.jpg", content.getvalue())
    return folder / "labelled", folder / "new"


def draw(name: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one picture `[SIDE, SIDE, 3]` of a class, a key of `PATTERNS`."""
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    angle, period = rng.uniform(0, 2 * np.pi), rng.uniform(*PERIOD)
    u = (x * np.cos(angle) + y * np.sin(angle)) / period + rng.uniform()
    v = (y * np.cos(angle) - x * np.sin(angle)) / period + rng.uniform()
    colours = rng.integers(0, 256, (2, 3))
    while np.abs(colours[0] - colours[1]).sum() < CONTRAST:
        colours = rng.integers(0, 256, (2, 3))
    clean = np.where(PATTERNS[name](u, v)[..., None], *colours)
    return np.clip(clean + rng.normal(0, NOISE, clean.shape), 0, 255).astype(np.uint8)
