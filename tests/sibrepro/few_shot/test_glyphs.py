from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font

from sibrepro.few_shot import glyphs

FRAME = np.pad(np.zeros((24, 24), bool), 4, constant_values=True)  # paper, nearly always


@pytest.fixture(scope="module")
def data():
    return glyphs.glyph_set(per_class=2)


def test_every_font_has_every_character():
    for name in glyphs.FONTS:
        font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"))
        assert {*map(ord, glyphs.CHARACTERS)} <= font.get_charmap().keys()


def test_there_are_hundreds_of_classes_and_each_is_in_one_split(data):
    assert len(set(data.classes)) == len(data.classes) == 300
    assert sorted(name for names in data.splits.values() for name in names) == sorted(data.classes)
    assert {split: len(names) for split, names in data.splits.items()} == {"train": 180, "val": 60, "test": 60}


def test_rows_carry_the_class_they_were_drawn_with(data):
    assert data.images.shape == (600, 32, 32, 3)
    for row in (3, 300, 599):
        assert np.array_equal(data.images[row], glyphs.draw(glyphs.CHARACTERS[data.labels[row]], 2, seed=0)[row % 2])


def test_the_same_seed_gives_the_same_content_and_another_gives_another(data):
    assert glyphs.glyph_set(per_class=2).sha256 == data.sha256
    other = glyphs.glyph_set(per_class=2, seed=1)
    assert not (other.images == data.images).all((1, 2, 3)).any()


@given(
    character=st.sampled_from(glyphs.CHARACTERS),
    seed=st.integers(0, 2**32),
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
@settings(max_examples=25)
def test_a_picture_does_not_depend_on_how_many_are_asked_for(character, seed, counts):
    few, more = (glyphs.draw(character, count, seed) for count in sorted(counts))
    assert np.array_equal(few, more[: len(few)])
    assert len({picture.tobytes() for picture in more}) == len(more)


def pictures(characters: str, count: int = 20) -> np.ndarray:
    """Grey pictures [characters, count, 32, 32]."""
    return np.stack([glyphs.draw(character, count, seed=3) for character in characters]).mean(-1)


def test_characters_are_dark_on_light_paper():
    grey = pictures("AgЖ∀↺")
    assert grey[..., FRAME].mean() > 165
    assert grey[..., ~FRAME].min(-1).mean() < 90


def test_without_a_turn_or_a_shift_a_character_is_centred_and_fills_its_size(monkeypatch):
    for name in ("ANGLE", "SHIFT"):
        monkeypatch.setattr(glyphs, name, 0)
    for shape in pictures("H", 60)[0]:
        rows, columns = (np.flatnonzero((shape < 145).any(axis)) for axis in (1, 0))
        assert np.allclose([rows[[0, -1]].mean(), columns[[0, -1]].mean()], 15.5, atol=1)
        assert 44 * 0.75 / 2 - 3 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 44 * 1.1 / 2 + 1


def test_glyphs_keep_clear_of_the_edge_so_that_nothing_is_cut_off():
    edge = np.pad(np.zeros((30, 30), bool), 1, constant_values=True)
    assert (pictures(glyphs.CHARACTERS[::10])[..., edge] < 100).mean() < 0.01


def test_classes_can_be_told_apart():
    """Nearest mean picture among 20 classes, where chance is 5 %."""
    characters = glyphs.CHARACTERS[::15]
    flat = pictures(characters, 40).reshape(len(characters), 40, -1)
    flat = flat - flat.mean(-1, keepdims=True)
    flat = flat / np.linalg.norm(flat, axis=-1, keepdims=True)
    means, truth = flat[:, :30].mean(1), np.arange(len(characters))[:, None]
    assert ((flat[:, 30:] @ means.T).argmax(-1) == truth).mean() > 0.5
