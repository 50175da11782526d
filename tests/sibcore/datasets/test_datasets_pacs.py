from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from tiny_images import plain, png, write_files, write_zip

from sibcore import datasets
from sibcore.datasets import pacs
from sibcore.datasets.archive import Source

REAL = Path(os.environ.get("SIB_DATA", "/nowhere")) / "pacs.zip"
TINY_COUNTS = {domain: (1 + number,) * 7 for number, domain in enumerate(pacs.DOMAINS)}


def tiny_pacs(top: str = "PACS/") -> dict[str, bytes]:
    """One picture of each class in the first domain, two in the second and so on; the colour is the number."""
    places = [
        f"{top}{domain}/{label}/pic_{number}.png"
        for domain, counts in TINY_COUNTS.items()
        for label, count in zip(pacs.CLASSES, counts, strict=True)
        for number in range(count)
    ]
    return {place: png(plain(number)) for number, place in enumerate(places)}


@pytest.fixture(autouse=True)
def tiny_counts(monkeypatch):
    monkeypatch.setattr(pacs, "COUNTS", TINY_COUNTS)


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "data", tiny_pacs())


def test_samples_are_the_first_pictures_of_each_domain_and_class(folder):
    found = pacs.samples(folder, size=9)
    assert set(found) == {(domain, label) for domain in pacs.DOMAINS for label in pacs.CLASSES}
    places = [tuple(place.split("/")[1:3]) for place in tiny_pacs()]
    for place, image in found.items():
        assert (image == plain(places.index(place), 9, 9)).all()


def test_every_picture_arrives_with_its_class_and_its_domain(folder, tmp_path):
    data = datasets.load("pacs", folder, cache=tmp_path, size=9)
    assert data.images.shape == (70, 9, 9, 3)
    for number, place in enumerate(tiny_pacs()):
        (row,) = np.flatnonzero((data.images == plain(number, 9, 9)).all((1, 2, 3)))
        _, domain, label, _ = place.split("/")
        assert (data.domain_names[data.domains[row]], data.classes[data.labels[row]]) == (domain, label)
        assert row in data.domain_rows(domain)
    assert [len(data.domain_rows(domain)) for domain in data.domain_names] == [7, 14, 21, 28]
    assert len(data.rows("all")) == 70


def test_images_have_224_pixels_unless_another_size_is_asked_for(folder, tmp_path):
    assert pacs.load(folder, cache=tmp_path).images.shape == (70, 224, 224, 3)
    assert pacs.load(folder, cache=tmp_path, size=8).images.shape == (70, 8, 8, 3)
    with pytest.raises(ValueError, match="at least 1 pixel"):
        pacs.load(folder, cache=tmp_path, size=0)


def test_folder_zip_and_a_repository_around_them_give_the_same_content(folder, tmp_path):
    around = {"repo-1234/README.md": b"", "repo-1234/drawing.png": png(plain(0)), "repo-1234/PACS/splits.txt": b""}
    clutter = {"__MACOSX/PACS/photo/dog/._pic_0.png": b"?", "repo-1234/PACS/photo/dog/.pic.png": b"?"}
    archive = write_zip(tmp_path / "a.zip", tiny_pacs("repo-1234/PACS/") | around | clutter)
    hashes = {pacs.load(source, tmp_path / "cache", size=8).sha256 for source in (folder, folder / "PACS", archive)}
    assert len(hashes) == 1


def test_an_unknown_domain_is_an_error_that_lists_the_known(folder, tmp_path):
    with pytest.raises(ValueError, match="art_painting, cartoon, photo, sketch"):
        pacs.load(folder, cache=tmp_path, size=8).domain_rows("art")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: {n: f for n, f in files.items() if "photo" not in n}, "no pictures in photo/dog"),
        (lambda files: {n: f for n, f in files.items() if "sketch/horse" not in n}, "no pictures in sketch/horse"),
        (lambda files: files | {"PACS/photo/cat/1.png": b""}, "unexpected pictures in photo/cat"),
        (lambda files: files | {"PACS/video/dog/1.png": b""}, "unexpected pictures in video/dog"),
        (lambda files: files | {"PACS/photo/1.png": b""}, "unexpected pictures in photo"),
        (lambda files: files | {"old/photo/dog/1.png": b""}, "2 folders with"),
        (lambda files: {"cat/1.png": b""}, "no folder with"),
        (lambda files: files | {"PACS/photo/dog/pic_0.png": b"?"}, r"photo/dog/pic_0\.png is not a readable picture"),
    ],
    ids=["no domain", "no class", "extra class", "extra domain", "loose picture", "twice", "other data", "corrupt"],
)
def test_what_is_wrong_is_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pacs.load(write_zip(tmp_path / "pacs.zip", change(tiny_pacs())), cache=tmp_path / "cache", size=8)


def test_a_count_that_is_not_the_published_one_is_a_warning_that_names_it(folder, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pacs.load(folder, cache=tmp_path, size=8)
    (folder / "PACS/photo/dog/pic_2.png").unlink()
    with pytest.warns(UserWarning, match="photo/dog has 2 images, published are 3"):
        assert len(pacs.load(folder, cache=tmp_path, size=8).images) == 69


def test_missing_data_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_DATA", str(tmp_path))
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=r"SIB_DATA.*sib data get pacs"):
        datasets.load("pacs")


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_listing_has_one_line_a_picture_with_its_hash_and_its_place(end, folder, tmp_path, monkeypatch):
    lines = [f"{hashlib.sha256(content).hexdigest()}  {place}" for place, content in sorted(tiny_pacs().items())]
    text = "\n".join(lines) + end
    monkeypatch.setattr(pacs, "LISTING", hashlib.sha256(text.encode()).hexdigest())
    archive = write_zip(tmp_path / "a.zip", tiny_pacs("repo-1234/PACS/"))
    pacs.check_listing(archive)
    pacs.check_listing(folder)
    (folder / "PACS/photo/dog/pic_2.png").write_bytes(png(plain(999)))
    with pytest.raises(ValueError, match="the published one has"):
        pacs.check_listing(folder)


def test_the_published_counts_add_up_to_those_of_the_paper(monkeypatch):
    monkeypatch.undo()
    assert [sum(counts) for counts in pacs.COUNTS.values()] == [2048, 2344, 1670, 3929]


@pytest.mark.skipif(not REAL.is_file(), reason="SIB_DATA does not hold pacs.zip")
def test_the_counts_written_down_are_those_of_the_real_archive(monkeypatch):
    monkeypatch.undo()
    places = [place[:2] for place in pacs.find_pictures(Source(REAL))]
    for domain, counts in pacs.COUNTS.items():
        assert tuple(places.count((domain, label)) for label in pacs.CLASSES) == counts
