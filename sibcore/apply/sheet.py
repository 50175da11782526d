"""A contact sheet: small pictures in rows, each with a line of text below it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE, LINE, GAP = 144, 32, 8  # pixels
COLUMNS = 6


def contact_sheet(pictures: Sequence[np.ndarray], captions: Sequence[str]) -> bytes:
    """A PNG of pictures uint8 [SIDE, SIDE, 3], each above its caption of at most two lines."""
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (GAP + columns * (SIDE + GAP), GAP + rows * (SIDE + LINE + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    for place, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left, top = GAP + place % columns * (SIDE + GAP), GAP + place // columns * (SIDE + LINE + GAP)
        sheet.paste(Image.fromarray(picture), (left, top))
        for number, line in enumerate(caption.splitlines()[:2]):
            draw.text((left, top + SIDE + 2 + 14 * number), _cut(line, font), "black", font)
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def _cut(line: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> str:
    """As much of the line as fits below a picture."""
    if not isinstance(font, ImageFont.FreeTypeFont):  # Pillow without FreeType has Latin letters alone
        line = line.encode("latin-1", "replace").decode("latin-1")
    while font.getlength(line) > SIDE:
        line = line[:-1]
    return line
