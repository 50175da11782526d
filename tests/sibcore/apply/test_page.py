"""The page of `sib predict`: what it shows, what it leaves to the CSV, and that it is self-contained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from axe import needs_axe, violations
from chromium import browser, look, needs_chromium, requests
from pages import Page
from PIL import Image

from sibcore.apply import cli, page, predict
from sibcore.datasets.archive import Source
from sibcore.transduce import Answers

NASTY = '<script>alert("&")'


def made_up(folder, counts: dict[str, int], n: int, changed: int) -> predict.Predictions:
    """Predictions of `n` one-coloured pictures in the folder of the first class, of which `changed` get another label.

    Args:
        folder: where the pictures go.
        counts: labelled pictures of each class.
        n: pictures to label.
        changed: how many change from the second class to the first.
    """
    names = {
        "support": [f"{name}/{i}.png" for name, count in counts.items() for i in range(count)],
        "query": [f"{next(iter(counts))}/{i:04}.png" for i in range(n)],
    }
    pictures = {}
    for part, files in names.items():
        for i, name in enumerate(files):
            file = folder / part / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 9), (i % 256, 100, 200)).save(file)
        pictures[part] = predict.Pictures(Source(folder / part), files, torch.zeros(len(files), 2), [])
    before = torch.full((n, len(counts)), 0.05).double()
    before[:, 0], before[:changed, 1] = 0.4, 0.5
    after = torch.full((n, len(counts)), 0.05).double()
    after[:, 0] = torch.linspace(0.6, 0.9, n)
    truth = torch.zeros(n, dtype=torch.int64)
    return predict.Predictions(
        "any-way", "conv4-64", 3, pictures["support"], pictures["query"], Answers(before, after), truth
    )


def read(tmp_path, found: predict.Predictions) -> Page:
    file = tmp_path / "page.html"
    file.write_text(page.page(found, "labels.csv"), encoding="utf-8")
    return Page(file)


def test_it_shows_every_picture_with_labels_and_confidences_changed_ones_first(tmp_path):
    found = made_up(tmp_path, {"cat": 2, "dog": 1}, n=5, changed=2)
    seen = read(tmp_path, found)
    assert seen.tags.count("img") == 5 + 3
    text = " ".join(seen.text.split())
    assert "Adaptation changed 2 labels." in text
    assert "Accuracy: 60.0 % before adaptation, 100.0 % after (5 pictures in class folders)." in text
    assert "adaptation corrected 2 of these labels and spoiled 0" in text
    # the second changed picture has the larger confidence; the last two unchanged ones are the surest
    places = [text.index(f"cat/{number:04}.png") for number in (1, 0, 2, 3, 4)]
    assert places == sorted(places)
    assert "cat/0001.png before dog 50 % after cat 68 % ✓ right" in text
    assert "2 labelled. Predicted for 3 before, 5 after." in text


def test_it_needs_nothing_from_elsewhere_and_runs_nothing(tmp_path):
    seen = read(tmp_path, made_up(tmp_path, {"cat": 1, "dog": 1}, n=3, changed=1))
    assert all(address.startswith("data:image/jpeg;base64,") for address in seen.resources)
    assert {link.removeprefix("#") for link in seen.links} <= {*seen.ids}
    assert "script" not in seen.tags
    assert not [name for name in seen.attributes if name.startswith("on")]


def test_every_picture_and_section_has_a_name_for_screen_readers(tmp_path):
    text = page.page(made_up(tmp_path, {"cat": 1, "dog": 1}, n=3, changed=1))
    assert text.count("<img ") == text.count(' alt="') == 5
    assert 'alt=""' not in text
    seen = read(tmp_path, made_up(tmp_path, {"cat": 1, "dog": 1}, n=3, changed=1))
    labelled = text.count("<section aria-labelledby=") + text.count('<section class="class" aria-labelledby=')
    assert labelled == seen.tags.count("section") == len(seen.ids)


def test_names_of_files_and_classes_are_only_text(tmp_path):
    found = made_up(tmp_path, {NASTY: 1, "b": 1}, n=2, changed=1)
    found.query.problems.append(f"{NASTY}.txt is odd")
    seen = read(tmp_path, found)
    assert "script" not in seen.tags
    assert f"{NASTY}/0000.png" in seen.text
    assert f"{NASTY}.txt is odd" in seen.text


def test_a_large_set_is_cut_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SHOWN_QUERIES", 10)
    monkeypatch.setattr(page, "SHOWN_SUPPORT", 4)
    found = made_up(tmp_path, {"a": 3, "b": 3}, n=30, changed=4)
    seen = read(tmp_path, found)
    assert seen.tags.count("img") == 10 + 4
    text = " ".join(seen.text.split())
    assert "This page shows 10 of 30 pictures. labels.csv has them all." in text
    assert "Unchanged, least confident first (6 of 26)" in text
    assert "3 labelled, 2 shown." in text
    assert len(found.csv().splitlines()) == 1 + 30
    monkeypatch.setattr(page, "SHOWN_SUPPORT", 1)
    assert "The first 1 of 2 classes are shown." in read(tmp_path, found).text


def test_warnings_stand_above_the_pictures_with_advice(tmp_path):
    found = made_up(tmp_path, {"a": 5, "b": 5, "c": 5}, n=5, changed=4)
    text = read(tmp_path, found).text
    (few, uneven, emptied), top = predict.doubts(found), text.index("a/0000.png")
    for doubt in (few, uneven, emptied):
        assert text.index(doubt.what) < text.index(doubt.advice) < top
    assert "only 5 pictures to label for 3 classes" in few.what
    assert "80 % of the pictures look like b" in uneven.what
    assert "left no picture in b" in emptied.what
    assert "No warnings." not in text


LOADED = """
const done = arguments[0];
const pictures = [...document.images];
Promise.allSettled(pictures.map(image => image.decode())).then(() => done({
    pictures: pictures.length,
    broken: pictures.filter(image => !image.naturalWidth).length,
    unnamed: pictures.filter(image => !image.alt).length,
    text: document.body.innerText,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    cut: [...document.querySelectorAll(".card, .card p, .class, h1, h2")]
        .filter(box => box.scrollWidth > box.clientWidth + 1).length,
    colours: [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color],
}));
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The CSV of `sib predict` on the demo set, with an odd name and a broken file added. The page is beside it."""
    folder = tmp_path_factory.mktemp("demo")
    labelled, new = folder / "demo" / "labelled", folder / "demo" / "new"
    assert cli.main(["demo", str(folder / "demo")]) == 0
    (new / "rings" / "01.jpg").rename(new / "rings" / f"{NASTY} {'long ' * 30}.jpg")
    (new / "rings" / "broken.jpg").write_text("not a picture")
    assert cli.main(["predict", f"--support={labelled}", f"--query={new}", f"--out={folder / 'labels.csv'}"]) == 0
    return folder / "labels.csv"


@pytest.mark.exhaustive
@needs_chromium
def test_the_demo_in_a_real_browser(demo):
    rows = len(demo.read_text(encoding="utf-8").splitlines()) - 1
    labelled = len([*demo.parent.glob("demo/labelled/*/*")])
    with browser() as driver:
        for width, height in ((1400, 1000), (390, 844)):
            brightness = {}
            for scheme in ("light", "dark"):
                look(driver, width, height, scheme)
                driver.get(demo.with_suffix(".html").as_uri())
                seen = driver.execute_async_script(LOADED)
                assert seen["pictures"] == rows + labelled
                assert (seen["broken"], seen["unnamed"], seen["overflow"], seen["cut"]) == (0, 0, 0, 0)
                for text in ("Changed by adaptation", "zigzags", "Accuracy: ", "<script>", "Files left out (1)"):
                    assert text in seen["text"]
                paper, ink = (np.mean([int(part) for part in c[4:-1].split(",")]) for c in seen["colours"])
                brightness[scheme] = paper - ink
                assert not driver.get_log("browser")
                assert {address.split(":")[0] for address in requests(driver)} <= {"file", "data"}
            assert brightness["light"] > 150 > -150 > brightness["dark"]


@pytest.mark.exhaustive
@needs_chromium
@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_barrier(demo, scheme):
    with browser() as driver:
        look(driver, 1400, 1000, scheme)
        driver.get(demo.with_suffix(".html").as_uri())
        assert violations(driver) == []
