"""Decode pictures: from whatever file to upright 8-bit RGB pixels, or to a ValueError that names the file."""

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
from sibcore.datasets.archive import Source
from sibcore.datasets.base import ImageSet, Index
from sibcore.datasets.cache import cached
from sibcore.datasets.progress import meter

T = TypeVar("T")
# Pillow tells these formats by a file's content. Others are left out, because some of their readers run other programs.
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")
AT_ONCE = 1024  # pictures handed to the threads at a time; as many are decoded in vain when one of them is broken
_one_large = threading.Lock()  # a large picture takes a gigabyte of memory; one for each core would be too much


def decoded(
    name: str, files: Source, names: Sequence[str], size: int, index: Index, cache: Path | None, *details: object
) -> ImageSet:
    """Return the image set of these pictures, from the cache or decoded now.

    Args:
        name: name of the set.
        files: where the pictures are.
        names: the pictures in `files`, in the order of `index.labels`.
        size: height and width of the images, in pixels.
        index: labels, classes and splits.
        cache: the cache folder, or None for the usual one.
        details: what the image set depends on besides the files.
    """
    if size < 1:
        raise ValueError(f"{name}: the image size must be at least 1 pixel, not {size}")
    return cached(name, files.key(*details), size, lambda: (decode(files, names, size), index), cache)


def decode(files: Source, names: Sequence[str], size: int) -> Iterator[np.ndarray]:
    """Yield the pictures as uint8 `[size, size, 3]`, resized where needed, and show the progress."""

    def one(name: str) -> np.ndarray:
        return decode_one(files.read(name), f"{files.path}: {name}", size)

    with meter(len(names), f"decoding {files.path.name}", " images") as bar:
        for image in in_order(one, names, AT_ONCE):
            yield image
            bar.update()


def in_order(one: Callable[[str], T], names: Iterable[str], at_once: int) -> Iterator[T]:
    """Yield `one(name)` for each name, computed by threads, of which at most `at_once` are under way or waiting."""
    coming = collections.deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool, warnings.catch_warnings():  # Pillow and zlib release the GIL
        # Pillow warns of pictures that it considers large; `decode_one` has its own limit
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
    """Decode one picture to uint8 `[size, size, 3]`, or raise a ValueError.

    Args:
        content: the content of the file.
        where: names the file in the error.
        size: height and width of the result, in pixels.
        least: the fewest pixels on a side that the picture may have.
        formats: Pillow's names of the formats that are read.
    """
    try:
        picture = Image.open(io.BytesIO(content), formats=formats)
        pixels = picture.width * picture.height
        if pixels > limits.PIXELS:
            raise ValueError(f"it has {pixels} pixels, and at most {limits.PIXELS} are decoded")
        if min(picture.size) < least:
            raise ValueError(f"it has {picture.width} x {picture.height} pixels, too few to show anything")
        large = pixels > limits.LARGE_PIXELS
        with _one_large if large else contextlib.nullcontext():
            if large:
                picture.draft(picture.mode, (2 * size, 2 * size))  # decodes a JPEG at half its size or less
            ImageOps.exif_transpose(picture, in_place=True)  # upright, as viewers show it
            picture = _rgb(picture)
            if picture.size != (size, size):
                picture = picture.resize((size, size), Image.Resampling.BICUBIC)
            return np.asarray(picture)
    except Exception as error:  # a broken file leads to errors of many kinds: SyntaxError, struct.error, ...
        why = f"it is none of {', '.join(formats)}" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"{where} is not a readable picture ({why}); replace the file and try again") from error


def _rgb(picture: Image.Image) -> Image.Image:
    """Convert to 8-bit RGB, on white where the picture is transparent; the hidden colours there mean nothing."""
    if picture.mode.startswith("I"):  # 16-bit grey, of which convert() would clip all but the lower half
        deep = np.asarray(picture)
        grey = Image.fromarray((deep >> 8).astype(np.uint8))
        if "transparency" in picture.info:
            opaque = deep != picture.info["transparency"]
            grey.putalpha(Image.fromarray(opaque.astype(np.uint8) * 255))
        picture = grey
    if not picture.has_transparency_data:
        return picture if picture.mode == "RGB" else picture.convert("RGB")  # convert() would copy an RGB picture
    picture = picture.convert("RGBA")
    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture)
    return white
