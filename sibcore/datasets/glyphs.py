"""Glyphs: characters of the fonts that matplotlib brings along, drawn with jitter in several styles; needs no file.

A class is a character, a domain is a style of drawing. Picture j of a class is drawn from (seed, style, class, j)
alone: asking for more pictures, other classes or other styles never changes it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont, ImageOps

from sibcore.datasets.base import ImageSet, Index, image_set

NAME = "glyphs"
SIZE = 32
# 300 characters that all of FONTS have and that stay apart when their size is made equal: no C and c, no A and Α.
CHARACTERS = (
    "$+0123456789<=>ABCDEFGHJKLMNOPQRSTUVWXYZabdefgjkmnpqrtuy¢£¤©"
    "¬®±µÆ×ÞßæðþĸŊŋƐƕƪǁǂɐɑɒɔɘəɞɣɤɩɮɵɶɷɸɹʀʁʃʇʉʊʍʎʒʔʕʖʗʘʙʚʞʣʤʦʧΔΞΣΦ"
    "ΨΩαβγζλνπςστυφχωϐϑϖϘϙϚϛϝϞϟϠϡϰϱϵ϶ЁЂЃЇЉЊЋЌЎЏБДЖЙЛУЧШЩЪЫЮЯгимфц"
    "ьюяёђѓћѢѣ€№™Å←↑→↓↖↗↘↙↜↝↯↶↷↸↹↺↻⇄⇅⇆⇇⇈⇉⇊⇋⇌⇎⇑⇓⇖⇗⇘⇙⇦⇨⇵∀∂∃∄∇∈∉∋∌∏∓"
    "∗√∝∞∟∠∧∨∩∪∫∬∭∸∹∺∻≐≑≒≓≔≠≡≤≥⊂⊃⊄⊅⊆⊇⊎⊏⊐⊑⊒⊓⊔⊕⊗⊙⊞⊠⊡⊢⊣⊤⊥⋄⌂⌐⌙△▷▽◁◊♭♮"
)
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSansMono",
    "STIXGeneral",
    "STIXGeneralBol",
)
# every fourth and fifth character of five, so that each split has letters of each alphabet, signs and arrows
SPLIT_OF = ("train", "train", "train", "val", "test")
HELP = 'it is drawn, so that there is no file to get: datasets.load("glyphs")'


@dataclasses.dataclass(frozen=True)
class Style:
    """How to colour a glyph: ranges of grey levels, within which each channel of a picture gets its own."""

    ink: tuple[float, float] = (0, 90)
    paper: tuple[float, float] = (165, 255)
    outline: bool = False
    paper_noise: float = 15  # grey levels up and down; INK_NOISE is that of the ink


STYLES = {
    "filled": Style(),
    "outline": Style(outline=True),
    "inverted": Style(ink=(165, 255), paper=(0, 90)),
    "noisy": Style(ink=(0, 70), paper=(120, 220), paper_noise=80),
}
INK_NOISE = 15
# a picture's random numbers: font, angle, scale, shear, shift (2), colour of ink (3) and paper (3); then noise
JITTER = 12
MAX_ANGLE, MAX_SHEAR, MAX_SHIFT = math.radians(15), 0.2, 0.08  # the shift as a part of the picture's side
SCALES = (0.75, 1.1)
STENCIL = 2 * SIZE  # glyphs are moved at twice the size and then halved, for smooth edges
GLYPH = 44  # the longer side of a glyph in its stencil


def load(
    source: Path | None = None,
    cache: Path | None = None,
    per_class: int = 40,
    seed: int = 0,
    styles: Sequence[str] = ("filled",),
) -> ImageSet:
    """`per_class` pictures of each character in each of `styles`, which are the domains; in memory, in no cache."""
    if source is not None:
        raise ValueError(f"{NAME}: got the source {source}, but {HELP}")
    if per_class < 1 or not styles:
        raise ValueError(f"{NAME}: needs at least one picture a class and one style, not {per_class} and {styles!r}")
    drawn = [draw(character, style, per_class, seed) for style in styles for character in CHARACTERS]
    classes = [unicodedata.name(character) for character in CHARACTERS]
    splits = {
        split: [name for number, name in enumerate(classes) if SPLIT_OF[number % len(SPLIT_OF)] == split]
        for split in dict.fromkeys(SPLIT_OF)
    }
    shape = (len(styles), len(CHARACTERS), per_class)
    domains, labels, _ = (axis.ravel().tolist() for axis in np.indices(shape))
    return image_set(NAME, np.concatenate(drawn), Index(labels, classes, splits, domains, styles))


def draw(character: str, style: str, count: int, seed: int) -> np.ndarray:
    """The first `count` pictures of a character in a style, uint8 [count, SIZE, SIZE, 3]."""
    if style not in STYLES:
        raise ValueError(f"{NAME}: there is no style {style!r}: expected one of {', '.join(STYLES)}")
    how = STYLES[style]
    rng = np.random.default_rng([seed, list(STYLES).index(style), ord(character)])
    # filled row by row, so that a longer series begins with the same pictures
    numbers = rng.random((count, JITTER + 3 * SIZE**2), dtype=np.float32)
    jitter, noise = numbers[:, :JITTER], 2 * numbers[:, JITTER:].reshape(count, SIZE, SIZE, 3) - 1
    stencils = _stencils(character, how.outline)
    placed = [_place(stencils, *row[:6]) for row in jitter.tolist()]
    covered = np.stack(placed)[..., None] / np.float32(255)  # [count, SIZE, SIZE, 1]
    ink = _between(how.ink, jitter[:, None, None, 6:9]) + INK_NOISE * noise
    paper = _between(how.paper, jitter[:, None, None, 9:12]) + how.paper_noise * noise
    return np.rint(np.clip(paper + covered * (ink - paper), 0, 255)).astype(np.uint8)


def _place(stencils: Sequence[Image.Image], font: float, angle: float, scale: float, *rest: float) -> np.ndarray:
    """Turn, scale, slant and shift the glyph of one font by numbers in [0, 1): coverage, uint8 [SIZE, SIZE]."""
    shear, right, down = (2 * number - 1 for number in rest)
    angle = MAX_ANGLE * (2 * angle - 1)
    shear *= MAX_SHEAR
    zoom = 1 / _between(SCALES, scale)
    cos, sin = zoom * math.cos(angle), zoom * math.sin(angle)
    # Pillow asks where in the stencil a pixel (x, y) comes from: p + A (x - c - shift), with p = c the centre
    a, b, d, e = cos, sin + shear * cos, -sin, cos - shear * sin
    x, y = (STENCIL * (0.5 + MAX_SHIFT * shift) for shift in (right, down))
    centre = STENCIL / 2
    inverse = (a, b, centre - a * x - b * y, d, e, centre - d * x - e * y)
    stencil = stencils[int(font * len(stencils))]
    moved = stencil.transform(stencil.size, Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR)
    return np.asarray(moved.reduce(STENCIL // SIZE))


@functools.cache
def _stencils(character: str, outline: bool) -> tuple[Image.Image, ...]:
    """The character in each font, or its outline: white on black, centred, its longer side GLYPH pixels."""
    stencils = []
    for name in FONTS:
        font = _font(name)
        left, top, right, bottom = font.getbbox(character)
        glyph = Image.new("L", (right - left, bottom - top))
        ImageDraw.Draw(glyph).text((-left, -top), character, fill=255, font=font)
        glyph = ImageOps.contain(glyph, (GLYPH, GLYPH), Image.Resampling.BICUBIC)
        stencil = Image.new("L", (STENCIL, STENCIL))
        stencil.paste(glyph, ((STENCIL - glyph.width) // 2, (STENCIL - glyph.height) // 2))
        if outline:
            stencil = ImageChops.subtract(stencil.filter(ImageFilter.MaxFilter(5)), stencil)
        stencils.append(stencil)
    return tuple(stencils)


@functools.cache
def _font(name: str) -> ImageFont.FreeTypeFont:
    found = importlib.util.find_spec("matplotlib")  # its files are wanted, not its code
    if found is None:
        raise ImportError(f"{NAME} are drawn with the fonts that matplotlib brings along: pip install matplotlib")
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"{name}.ttf", 2 * GLYPH)


def _between(ends: tuple[float, float], part: float | np.ndarray) -> float | np.ndarray:
    return ends[0] + part * (ends[1] - ends[0])
