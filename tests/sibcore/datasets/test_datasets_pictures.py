"""Every kind of picture becomes the pixels that a viewer shows; no file, however broken, does harm."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_images import write_files

from sibcore import datasets
from sibcore.datasets import limits
from sibcore.datasets.pictures import decode_one

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)


def saved(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def decoded(content: bytes, size: int = 8) -> np.ndarray:
    image = decode_one(content, "here.png", size)
    assert image.shape == (size, size, 3)
    assert image.dtype == np.uint8
    return image


def png_of(width: int, height: int, depth: int = 8, colour: int = 2, rows: bytes = b"", more: bytes = b"") -> bytes:
    """A PNG chunk by chunk, for what Pillow would not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    transparency = chunk(b"tRNS", more) if more else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + transparency
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_16_bit_grey_keeps_its_brightness():
    deep = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    assert np.array_equal(decoded(saved(Image.fromarray(deep))), np.repeat((deep >> 8)[..., None], 3, 2))


def test_16_bit_grey_is_white_where_it_is_transparent():
    rows = b"".join(b"\0" + struct.pack(">8H", *([1000] * 4 + [40000] * 4)) for _ in range(8))
    image = decoded(png_of(8, 8, 16, 0, rows, struct.pack(">H", 1000)))
    assert (image[:, :4] == 255).all()
    assert (image[:, 4:] == 40000 >> 8).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "PNG of 8-bit grey", "PNG of colours", "WEBP"])
def test_what_is_transparent_is_white_and_what_is_opaque_as_it_was(mode):
    left, right = (np.arange(8) < 4), (np.arange(8) >= 4)
    if mode == "P":
        picture = Image.fromarray(np.tile(left, (8, 1)).astype(np.uint8), "P")
        picture.putpalette([10, 20, 30, 200, 0, 0])
        content, colour = saved(picture, transparency=1), (10, 20, 30)
    elif mode == "PNG of 8-bit grey":
        content, colour = saved(Image.fromarray(np.where(left, 90, 40)[None].repeat(8, 0).astype(np.uint8))), (40,) * 3
        content = png_of(8, 8, 8, 0, (b"\0" + bytes([90] * 4 + [40] * 4)) * 8, b"\0\x5a")
    elif mode == "PNG of colours":
        rows = (b"\0" + bytes([200, 0, 0] * 4 + [10, 20, 30] * 4)) * 8
        content, colour = png_of(8, 8, 8, 2, rows, b"\0\xc8\0\0\0\0"), (10, 20, 30)
    else:
        picture = Image.new("RGBA", (8, 8), (10, 20, 30, 255))
        picture.paste((200, 0, 0, 0), (0, 0, 4, 8))
        content = saved(picture, "WEBP", lossless=True, exact=True) if mode == "WEBP" else saved(picture.convert(mode))
        colour = (10, 20, 30) if mode != "LA" else (18,) * 3
    image = decoded(content)
    assert (image[:, left] == 255).all()
    assert (image[:, right] == colour).all()


def test_half_transparent_black_is_grey_and_opaque_colours_stay_to_the_bit():
    assert (decoded(saved(Image.new("RGBA", (8, 8), (0, 0, 0, 128)))) == 127).all()
    opaque = Image.fromarray(COLOURS).convert("RGBA")
    assert np.array_equal(decoded(saved(opaque)), COLOURS)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "RGB"])
def test_other_kinds_show_what_they_hold(mode):
    picture = Image.fromarray(np.kron(np.array([[0, 255], [255, 0]], np.uint8), np.ones((4, 4), np.uint8)))
    kind = {"format": "JPEG", "quality": 100} if mode == "CMYK" else {"format": "PNG"}
    content = saved(picture.convert("RGB").convert(mode), kind.pop("format"), **kind)
    image = decoded(content).astype(int)
    assert np.abs(image - np.asarray(picture)[..., None]).max() <= 3


def test_one_pixel_and_one_line_are_pictures():
    assert (decoded(saved(Image.new("RGB", (1, 1), (1, 2, 3)))) == (1, 2, 3)).all()
    assert (decoded(saved(Image.new("RGB", (3000, 1), (1, 2, 3)))) == (1, 2, 3)).all()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height"), [(12_000, 11_999), (60_000, 60_000), (0, 5), (5, 0)])
def test_a_picture_of_too_many_pixels_or_none_is_an_error_that_names_it(width, height):
    assert width * height == 0 or width * height > limits.PIXELS
    with pytest.raises(ValueError, match=r"here\.png is not a readable picture \((.*pixels|it is none of PNG)"):
        decode_one(png_of(width, height), "here.png", 8)


@pytest.mark.thorough
def test_a_photo_of_108_million_pixels_is_scaled_down_while_it_is_decoded(tmp_path, monkeypatch):
    photo = Image.new("RGB", (12_000, 9_000), (200, 100, 50))
    photo.paste((0, 0, 0), (0, 0, 12_000, 4_500))
    sizes, resize = [], Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *a, **k: sizes.append(self.size) or resize(self, *a, **k))
    files = {"a/1.jpg": saved(photo, "JPEG"), "splits.yaml": b"train: [a]"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = datasets.load("folder", write_files(tmp_path / "data", files), tmp_path / "cache", size=84).images[0]
    assert sizes == [(1500, 1125)]  # an eighth of each side, which no JPEG decoder goes below
    assert image[:40].max() < 10
    assert np.abs(image[44:].astype(int) - (200, 100, 50)).max() < 10


@pytest.mark.parametrize("kind", ["TIFF", "EPS", "PPM"])
def test_formats_that_are_not_for_the_web_are_not_opened_whatever_the_name(kind):
    with pytest.raises(ValueError, match=r"here\.png is not a readable picture"):
        decode_one(saved(Image.fromarray(COLOURS), kind), "here.png", 8)


KINDS = {
    "PNG": saved(Image.fromarray(COLOURS)),
    "JPEG": saved(Image.fromarray(COLOURS), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\1\3\0\1\0\0\0\6\0\0\0"),
    "BMP": saved(Image.fromarray(COLOURS), "BMP"),
    "WEBP": saved(Image.fromarray(COLOURS), "WEBP"),
    "GIF": saved(Image.fromarray(COLOURS), "GIF"),
}


@given(
    kind=st.sampled_from(sorted(KINDS)),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    length=st.integers(0, 10_000),
)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_picture_is_decoded_or_a_valueerror(kind, changes, length):
    content = bytearray(KINDS[kind])
    for place, value in changes:
        content[place % len(content)] = value
    with contextlib.suppress(ValueError):  # any other error would be a raw one
        decoded(bytes(content[:length]) if length % 3 else bytes(content))
