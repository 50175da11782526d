"""Glyphs: characters of the fonts that matplotlib brings along, drawn with jitter; an image set that needs no file.

A class is a character. Picture j of a class depends on (seed, class, j) alone: asking for more never changes it.
"""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from sibcore.datasets.base import ImageSet, Index, image_set

SIZE = 32
STENCIL = 2 * SIZE  # characters are drawn at twice the size and then halved, for smooth edges
GLYPH = 44  # the longer side of a character in its stencil, on average
ANGLE, SHIFT = 15, 5  # at most, in degrees and pixels of the stencil
# 300 characters that all of FONTS have and that stay apart when their size is made equal: no C and c, no A and Α.
CHARACTERS = (
    "$+0123456789<=>ABCDEFGHJKLMNOPQRSTUVWXYZabdefgjkmnpqrtuy¢£¤©"
    "¬®±µÆ×ÞßæðþĸŊŋƐƕƪǁǂɐɑɒɔɘəɞɣɤɩɮɵɶɷɸɹʀʁʃʇʉʊʍʎʒʔʕʖʗʘʙʚʞʣʤʦʧΔΞΣΦ"
    "ΨΩαβγζλνπςστυφχωϐϑϖϘϙϚϛϝϞϟϠϡϰϱϵ϶ЁЂЃЇЉЊЋЌЎЏБДЖЙЛУЧШЩЪЫЮЯгимфц"
    "ьюяёђѓћѢѣ€№™Å←↑→↓↖↗↘↙↜↝↯↶↷↸↹↺↻⇄⇅⇆⇇⇈⇉⇊⇋⇌⇎⇑⇓⇖⇗⇘⇙⇦⇨⇵∀∂∃∄∇∈∉∋∌∏∓"
    "∗√∝∞∟∠∧∨∩∪∫∬∭∸∹∺∻≐≑≒≓≔≠≡≤≥⊂⊃⊄⊅⊆⊇⊎⊏⊐⊑⊒⊓⊔⊕⊗⊙⊞⊠⊡⊢⊣⊤⊥⋄⌂⌐⌙△▷▽◁◊♭♮"
)
FONTS = "DejaVuSans DejaVuSans-Bold DejaVuSerif DejaVuSerif-Bold DejaVuSansMono STIXGeneral STIXGeneralBol".split()
# every fourth and fifth character of five, so that each split has letters of each alphabet, signs and arrows
SPLIT_OF = ("train", "train", "train", "val", "test")


def glyph_set(per_class: int = 40, seed: int = 0) -> ImageSet:
    """`per_class` pictures of each character, made in memory."""
    classes = [unicodedata.name(character) for character in CHARACTERS]
    splits = {
        split: [name for number, name in enumerate(classes) if SPLIT_OF[number % len(SPLIT_OF)] == split]
        for split in dict.fromkeys(SPLIT_OF)
    }
    images = np.concatenate([draw(character, per_class, seed) for character in CHARACTERS])
    labels = np.arange(len(classes)).repeat(per_class).tolist()
    return image_set("glyphs", images, Index(labels, classes, splits))


def draw(character: str, count: int, seed: int) -> np.ndarray:
    """The first `count` pictures of a character, uint8 [count, SIZE, SIZE, 3]."""
    rng = np.random.default_rng([seed, ord(character)])
    return np.stack([_picture(character, rng) for _ in range(count)])


def _picture(character: str, rng: np.random.Generator) -> np.ndarray:
    """Dark on light, of any colours, in any font; scaled, shifted and turned at random, with noise."""
    side = round(GLYPH * rng.uniform(0.75, 1.1))
    glyph = ImageOps.contain(_glyph(character, FONTS[rng.integers(len(FONTS))]), (side, side))
    corner = (STENCIL - np.array(glyph.size)) // 2 + rng.integers(-SHIFT, SHIFT, 2, endpoint=True)
    stencil = Image.new("L", (STENCIL, STENCIL))
    stencil.paste(glyph, tuple(corner.tolist()))
    stencil = stencil.rotate(rng.uniform(-ANGLE, ANGLE), Image.Resampling.BILINEAR).reduce(STENCIL // SIZE)
    covered = np.asarray(stencil)[..., None] / 255
    ink, paper = rng.uniform(0, 90, 3), rng.uniform(165, 255, 3)
    noise = rng.uniform(-15, 15, (SIZE, SIZE, 3))
    return np.rint(np.clip(paper + covered * (ink - paper) + noise, 0, 255)).astype(np.uint8)


@functools.cache
def _glyph(character: str, font: str) -> Image.Image:
    """A character, white on black and without margins, larger than it will be."""
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    letters = ImageFont.truetype(path, 2 * GLYPH)
    left, top, right, bottom = letters.getbbox(character)
    glyph = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(glyph).text((-left, -top), character, fill=255, font=letters)
    return glyph
