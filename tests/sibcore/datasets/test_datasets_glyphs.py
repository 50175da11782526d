from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font

from sibcore import datasets
from sibcore.datasets import glyphs

FRAME = np.pad(np.zeros((24, 24), bool), 4, constant_values=True)  # paper, nearly always


@pytest.fixture(scope="module")
def filled():
    return datasets.load("glyphs", per_class=2)


def test_every_font_has_every_character():
    for name in glyphs.FONTS:
        font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"))
        assert {*map(ord, glyphs.CHARACTERS)} <= font.get_charmap().keys()


def test_there_are_hundreds_of_classes_and_each_is_in_one_split(filled):
    assert len(set(filled.classes)) == len(filled.classes) == 300
    assert sorted(name for names in filled.splits.values() for name in names) == sorted(filled.classes)
    assert {split: len(names) for split, names in filled.splits.items()} == {"train": 180, "val": 60, "test": 60}


def test_rows_carry_the_class_and_the_style_they_were_drawn_with(filled):
    both = datasets.load("glyphs", per_class=2, styles=("noisy", "filled"))
    assert both.images.shape == (1200, 32, 32, 3)
    assert both.domain_names == ("noisy", "filled")
    assert np.array_equal(both.images[both.domain_rows("filled")], filled.images)
    assert np.array_equal(both.labels[both.domain_rows("filled")], filled.labels)
    for row in (3, 700, 1199):
        character = glyphs.CHARACTERS[both.labels[row]]
        drawn = glyphs.draw(character, both.domain_names[both.domains[row]], 2, seed=0)
        assert np.array_equal(both.images[row], drawn[row % 2])


def test_the_same_seed_gives_the_same_content_and_another_gives_another(filled):
    assert datasets.load("glyphs", per_class=2).sha256 == filled.sha256
    other = datasets.load("glyphs", per_class=2, seed=1)
    assert not (other.images == filled.images).all((1, 2, 3)).any()


@given(
    character=st.sampled_from(glyphs.CHARACTERS),
    style=st.sampled_from(list(glyphs.STYLES)),
    seed=st.integers(0, 2**32),
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
@settings(max_examples=25)
def test_a_picture_does_not_depend_on_how_many_are_asked_for(character, style, seed, counts):
    few, more = (glyphs.draw(character, style, count, seed) for count in sorted(counts))
    assert np.array_equal(few, more[: len(few)])
    assert len({picture.tobytes() for picture in more}) == len(more)


def pictures(style: str, characters: str = "AgЖ∀↺", count: int = 20) -> np.ndarray:
    """Grey pictures [characters, count, 32, 32]."""
    return np.stack([glyphs.draw(character, style, count, seed=3) for character in characters]).mean(-1)


def test_styles_differ_as_their_names_say():
    paper = {style: pictures(style)[..., FRAME] for style in glyphs.STYLES}
    inside = {style: pictures(style)[..., ~FRAME] for style in glyphs.STYLES}
    assert paper["filled"].mean() > 165 > 90 > paper["inverted"].mean()
    assert inside["filled"].min(-1).mean() < 90
    assert inside["inverted"].max(-1).mean() > 165
    assert paper["noisy"].std(-1).mean() > 2 * paper["filled"].std(-1).mean()


def test_an_outline_is_dark_around_the_letter_and_light_inside_it():
    stencils = glyphs._stencils("∗", outline=False), glyphs._stencils("∗", outline=True)
    for solid, line in zip(*(map(np.asarray, group) for group in stencils), strict=True):
        assert solid.max() == 255
        assert line[solid == 255].max() == 0  # nothing of the glyph itself
        assert line.max() > 200


def test_without_jitter_a_character_has_one_centred_shape_a_font(monkeypatch):
    for name in ("MAX_ANGLE", "MAX_SHEAR", "MAX_SHIFT", "INK_NOISE"):
        monkeypatch.setattr(glyphs, name, 0)
    monkeypatch.setattr(glyphs, "SCALES", (1, 1))
    monkeypatch.setitem(glyphs.STYLES, "filled", glyphs.Style(ink=(0, 0), paper=(255, 255), paper_noise=0))
    shapes = np.unique(glyphs.draw("K", "filled", 60, seed=0)[..., 0], axis=0)
    assert len(shapes) == len(glyphs.FONTS)
    for shape in shapes:
        rows, columns = (np.flatnonzero((shape < 128).any(axis)) for axis in (1, 0))
        assert np.allclose([rows[[0, -1]].mean(), columns[[0, -1]].mean()], 15.5, atol=1)
        assert 20 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 23


def test_glyphs_keep_clear_of_the_edge_so_that_nothing_is_cut_off():
    edge = np.pad(np.zeros((30, 30), bool), 1, constant_values=True)
    dark = pictures("filled", glyphs.CHARACTERS[::10])[..., edge] < 100
    assert dark.mean() < 0.01


def test_classes_can_be_told_apart_within_a_style_and_less_well_across_styles():
    """Nearest mean picture among 20 classes, where chance is 5 %."""
    characters = glyphs.CHARACTERS[::15]

    def normalised(style: str) -> np.ndarray:
        flat = pictures(style, characters, 40).reshape(len(characters), 40, -1)
        flat = flat - flat.mean(-1, keepdims=True)
        return flat / np.linalg.norm(flat, axis=-1, keepdims=True)

    means = normalised("filled")[:, :30].mean(1)
    truth = np.arange(len(characters))[:, None]
    accuracy = {s: ((normalised(s)[:, 30:] @ means.T).argmax(-1) == truth).mean() for s in ("filled", "inverted")}
    assert accuracy["filled"] > 0.5
    assert accuracy["inverted"] < 0.2


def test_impossible_wishes_are_errors_that_say_so(tmp_path):
    with pytest.raises(ValueError, match="filled, outline, inverted, noisy"):
        datasets.load("glyphs", styles=("dotted",))
    with pytest.raises(ValueError, match="at least one picture"):
        datasets.load("glyphs", per_class=0)
    with pytest.raises(ValueError, match="one style"):
        datasets.load("glyphs", styles=())
    with pytest.raises(ValueError, match="no file to get"):
        datasets.load("glyphs", source=tmp_path)
