"""`sib demo`: the pictures that it draws depend on the seed alone, and `sib predict` can take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sibcore.apply import cli, demo


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*.*")}


def test_a_seed_draws_the_same_pictures_and_another_seed_others(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "COUNTS", {"labelled": 1, "new": 2})
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        demo.draw_set(tmp_path / name, seed)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a.keys() == c.keys()
    assert all(a[name] != c[name] for name in a)
    assert len(set(a.values())) == len(a) == 3 * len(demo.PATTERNS)
    assert {name.split("/")[1] for name in a} == set(demo.PATTERNS)


def test_a_pattern_has_two_colours_that_differ(monkeypatch):
    monkeypatch.setattr(demo, "NOISE", 0)
    for name in demo.PATTERNS:
        colours = np.unique(demo.draw(name, np.random.default_rng(3)).reshape(-1, 3), axis=0).astype(int)
        assert len(colours) == 2
        assert np.abs(colours[0] - colours[1]).sum() >= demo.CONTRAST


def test_the_command_draws_into_a_new_folder_and_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "COUNTS", {"labelled": 1, "new": 2})
    folder = tmp_path / "my demo"
    assert cli.main(["demo", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"sib predict --support '{folder / 'labelled'}' --query '{folder / 'new'}' --out labels.csv" in said
    for part, count in demo.COUNTS.items():
        for name in demo.PATTERNS:
            files = [*(folder / part / name).iterdir()]
            assert len(files) == count
            assert Image.open(files[0]).size == (demo.SIDE, demo.SIDE)


@pytest.mark.parametrize("kind", ["file", "folder with something in it"])
def test_nothing_is_drawn_over(tmp_path, capsys, kind):
    place = tmp_path / "demo"
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "mine").write_text("mine")
    before = set(tmp_path.rglob("*"))
    assert cli.main(["demo", str(place)]) == 2
    assert "is not an empty folder: name a new one" in capsys.readouterr().err
    assert set(tmp_path.rglob("*")) == before
