"""Draw a contact sheet: small pictures in rows, each with a caption below it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE, LINE, GAP = 144, 32, 8  # in pixels: a picture's side, the height of a caption, the space around both
COLUMNS = 6


def contact_sheet(pictures: Sequence[np.ndarray], captions: Sequence[str]) -> bytes:
    """Return a PNG that shows pictures above their captions.

    Args:
        pictures: uint8 `[SIDE, SIDE, 3]` each.
        captions: texts of at most two lines; longer ones are cut.
    """
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    width, height = SIDE + GAP, SIDE + LINE + GAP
    sheet = Image.new("RGB", (GAP + columns * width, GAP + rows * height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    for place, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        row, column = divmod(place, columns)
        left, top = GAP + column * width, GAP + row * height
        sheet.paste(Image.fromarray(picture), (left, top))
        for number, line in enumerate(caption.splitlines()[:2]):
            draw.text((left, top + SIDE + 2 + 14 * number), _cut(line, font), "black", font)
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def _cut(line: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> str:
    """Return as much of the line as fits below a picture."""
    if not isinstance(font, ImageFont.FreeTypeFont):  # Pillow without FreeType can only write Latin letters
        line = line.encode("latin-1", "replace").decode("latin-1")
    while font.getlength(line) > SIDE:
        line = line[:-1]
    return line
