"""Pictures as pixels: whatever the file, upright 8-bit RGB, or a ValueError that names the file."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sibcore.datasets import limits
from sibcore.datasets.archive import Files
from sibcore.datasets.base import ImageSet, Index
from sibcore.datasets.cache import cached
from sibcore.datasets.progress import meter

T = TypeVar("T")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")  # told by the content; no more, since some readers run other programs
AT_ONCE = 1024  # pictures handed to the threads: so many are decoded in vain when one is broken
_one_large = threading.Lock()  # a large picture takes a gigabyte of memory; one for each core would be too much


def decoded(
    name: str, files: Files, names: Sequence[str], size: int, index: Index, cache: Path | None, *details: object
) -> ImageSet:
    """The image set of these pictures at `size` x `size` pixels, from the cache or decoded now.

    `details` are what it depends on beside the files.
    """
    if size < 1:
        raise ValueError(f"{name}: the image size must be at least 1 pixel, not {size}")
    return cached(name, files.key(*details), size, lambda: (decode(files, names, size), index), cache)


def decode(files: Files, names: Sequence[str], size: int) -> Iterator[np.ndarray]:
    """The pictures, each uint8 [size, size, 3], resized where needed."""

    def one(name: str) -> np.ndarray:
        return decode_one(files.read(name), f"{files.path}: {name}", size)

    with meter(len(names), f"decoding {files.path.name}", " images") as bar:
        for image in in_order(one, names, AT_ONCE):
            yield image
            bar.update()


def in_order(one: Callable[[str], T], names: Iterable[str], at_once: int) -> Iterator[T]:
    """`one(name)` for each name, computed by threads, so many at a time."""
    coming = collections.deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool, warnings.catch_warnings():  # Pillow and zlib let go of the GIL
        # Pillow's, about pictures which it deems large; `decode_one` has its own limit
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for name in names:
            coming.append(pool.submit(one, name))
            if len(coming) == at_once:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def decode_one(
    content: bytes, where: str, size: int, *, least: int = 1, formats: Sequence[str] = FORMATS
) -> np.ndarray:
    """One picture as uint8 [size, size, 3]; `where` names it in the error, `least` are its pixels on each side."""
    try:
        picture = Image.open(io.BytesIO(content), formats=formats)
        pixels = picture.width * picture.height
        if pixels > limits.PIXELS:
            raise ValueError(f"it has {pixels} pixels, and at most {limits.PIXELS} are decoded")
        if min(picture.size) < least:
            raise ValueError(f"it has {picture.width} x {picture.height} pixels, too few to show anything")
        with _one_large if pixels > limits.LARGE_PIXELS else contextlib.nullcontext():
            if pixels > limits.LARGE_PIXELS:
                picture.draft(picture.mode, (2 * size, 2 * size))  # a JPEG, at half its size or less
            ImageOps.exif_transpose(picture, in_place=True)  # upright, as viewers show it
            picture = _rgb(picture)
            if picture.size != (size, size):
                picture = picture.resize((size, size), Image.Resampling.BICUBIC)
            return np.asarray(picture)
    except Exception as error:  # Pillow lets through whatever a broken file leads to: SyntaxError, struct.error, ...
        why = f"it is none of {', '.join(formats)}" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"{where} is not a readable picture ({why}); replace the file and try again") from error


def _rgb(picture: Image.Image) -> Image.Image:
    """As 8-bit RGB, on white where it is transparent; the colours that a file has below there are not meant."""
    if picture.mode.startswith("I"):  # 16-bit grey, whose lower half convert() would take and clip
        deep = np.asarray(picture)
        grey = Image.fromarray((deep >> 8).astype(np.uint8))
        if "transparency" in picture.info:
            grey.putalpha(Image.fromarray((deep != picture.info["transparency"]).astype(np.uint8) * 255))
        picture = grey
    if not picture.has_transparency_data:
        return picture if picture.mode == "RGB" else picture.convert("RGB")  # which would copy it
    picture = picture.convert("RGBA")
    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture)
    return white
