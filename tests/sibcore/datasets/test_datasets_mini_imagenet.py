from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_images import plain, png, write_files, write_zip

from sibcore import datasets
from sibcore.datasets import mini_imagenet

PER_CLASS = 2
NOISE = np.random.default_rng(0).integers(0, 256, (84, 84, 3), dtype=np.uint8)
REAL = Path(os.environ.get("SIB_DATA", "/nowhere")) / "mini-imagenet"
pytestmark = pytest.mark.filterwarnings("ignore:.*not the known pixels")


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    monkeypatch.setattr(mini_imagenet, "IMAGES_PER_CLASS", PER_CLASS)


def pictures() -> dict[tuple[str, str], bytes]:
    """(class, file name) -> a picture whose colour is its number."""
    places = [(label, f"{label}{number:08d}.png") for label in mini_imagenet.CLASSES for number in range(PER_CLASS)]
    return {place: png(plain(number)) for number, place in enumerate(places)}


def by_class() -> dict[str, bytes]:
    return {f"{label}/{name}": content for (label, name), content in pictures().items()}


def by_table() -> dict[str, bytes]:
    """As Ravi & Larochelle have it; the lines in another order than the files."""
    files = {f"images/{name}": content for (_, name), content in pictures().items()}
    for split, classes in mini_imagenet.SPLITS.items():
        lines = [f"{name},{label}" for label, name in reversed(pictures()) if label in classes]
        files[f"{split}.csv"] = "\n".join(["filename,label", *lines]).encode()
    return files


def test_the_published_split_has_64_16_and_20_classes_and_none_twice():
    sizes = {split: len(names) for split, names in mini_imagenet.SPLITS.items()}
    assert sizes == {"train": 64, "val": 16, "test": 20}
    assert len(set(mini_imagenet.CLASSES)) == 100
    # house finch, goose, nematode
    for split, label in {"train": "n01532829", "val": "n01855672", "test": "n01930112"}.items():
        assert label in mini_imagenet.SPLITS[split]


def test_every_picture_arrives_with_its_class_at_84_pixels(tmp_path):
    data = datasets.load("mini-imagenet", write_files(tmp_path / "data", by_class()), cache=tmp_path)
    assert data.images.shape == (100 * PER_CLASS, 84, 84, 3)
    for number, (label, _) in enumerate(pictures()):
        (row,) = np.flatnonzero((data.images == plain(number, 84, 84)).all((1, 2, 3)))
        assert data.classes[data.labels[row]] == label


def test_class_folders_tables_and_a_zip_with_a_top_folder_give_the_same_content(tmp_path):
    folder = mini_imagenet.load(write_files(tmp_path / "a", by_class()), cache=tmp_path / "cache")
    table = mini_imagenet.load(write_files(tmp_path / "b", by_table()), cache=tmp_path / "cache")
    below = {f"mini/{name}": content for name, content in by_table().items()}
    archive = mini_imagenet.load(write_zip(tmp_path / "c.zip", below), cache=tmp_path / "cache")
    assert folder.sha256 == table.sha256 == archive.sha256


def test_class_folders_may_lie_in_folders_of_their_split(tmp_path):
    split_of = {label: split for split, classes in mini_imagenet.SPLITS.items() for label in classes}
    files = {f"{split_of[name.split('/')[0]]}/{name}": content for name, content in by_class().items()}
    nested = mini_imagenet.load(write_files(tmp_path / "a", files), cache=tmp_path / "cache")
    flat = mini_imagenet.load(write_files(tmp_path / "b", by_class()), cache=tmp_path / "cache")
    assert nested.sha256 == flat.sha256


def jpeg(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "jpeg", quality=50)
    return content.getvalue()


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {other: content for other, content in files.items() if other != name}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (lambda: without(by_table(), "val.csv"), "no val.csv beside train.csv"),
        (lambda: without(by_table(), "images/n0153282900000001.png"), "not there: images/n0153282900000001.png"),
        (lambda: by_table() | {"test.csv": b"file;class\n"}, "first line of test.csv is not filename,label"),
        (lambda: by_table() | {"test.csv": b""}, "first line of test.csv is not filename,label"),
        (lambda: by_table() | {"val.csv": by_table()["test.csv"]}, "val.csv lists the class n07613480.*published val"),
        (lambda: without(by_class(), "n01532829/n0153282900000001.png"), "n01532829 has 1"),
        (lambda: by_class() | {"n00000001/1.png": png(plain(0))}, "n00000001 is not one of its classes"),
        (
            lambda: by_class() | {"n01532829/n0153282900000001.png": b"?"},
            r"n01532829/n0153282900000001\.png is not a read",
        ),
        (
            lambda: by_class() | {"n01532829/n0153282900000001.png": jpeg(NOISE)[:1000]},
            r"n01532829/n0153282900000001\.png is not a read.*truncated",
        ),
        (lambda: by_table() | {"train.csv": b"\n".join(by_table()["train.csv"].split(b"\n")[:-1])}, "has 1"),
    ],
    ids=[
        "no table",
        "no picture",
        "header",
        "empty table",
        "wrong split",
        "too few",
        "unknown class",
        "corrupt",
        "truncated picture",
        "truncated table",
    ],
)
def test_what_is_wrong_is_named(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        mini_imagenet.load(write_files(tmp_path / "data", files()), cache=tmp_path / "cache")


def test_the_folders_train_and_val_of_the_published_archive_are_merged_and_split_by_class(tmp_path):
    files = {f"repo-557e/{['train', 'val'][n % PER_CLASS]}/{name}": c for n, (name, c) in enumerate(by_class().items())}
    archive = mini_imagenet.load(write_zip(tmp_path / "a.zip", files | {"repo-557e/.gitattributes": b""}), tmp_path)
    assert archive.sha256 == mini_imagenet.load(write_files(tmp_path / "b", by_class()), cache=tmp_path).sha256
    assert len(archive.rows("test")) == 20 * PER_CLASS


def test_other_pixels_than_the_known_are_a_warning_that_names_both_and_says_why(tmp_path, monkeypatch):
    folder = write_files(tmp_path / "data", by_class())
    with pytest.warns(
        UserWarning, match=r"not the known pixels \(sha256 \w+, known is 25298243.*encoded in another way"
    ):
        data = mini_imagenet.load(folder, cache=tmp_path)
    monkeypatch.setattr(mini_imagenet, "SHA256", data.sha256)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mini_imagenet.load(folder, cache=tmp_path)


def test_pictures_that_were_encoded_anew_are_told_from_the_known_ones(tmp_path, monkeypatch):
    """Noise, which a JPEG of low quality changes; the folder it comes from is named."""
    known = by_class() | {"n01532829/n0153282900000001.png": png(NOISE)}
    monkeypatch.setattr(
        mini_imagenet, "SHA256", mini_imagenet.load(write_files(tmp_path / "a", known), tmp_path).sha256
    )
    folder = write_files(tmp_path / "b", known | {"n01532829/n0153282900000001.png": jpeg(NOISE)})
    with pytest.warns(UserWarning, match=f"{folder}: .* not the known pixels"):
        mini_imagenet.load(folder, tmp_path)


def test_missing_data_is_an_error_that_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_DATA", str(tmp_path))
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=r"sib data get mini-imagenet --accept-terms.*source.*SIB_DATA"):
        datasets.load("mini-imagenet")


@pytest.mark.exhaustive
@pytest.mark.skipif(not REAL.is_dir(), reason="SIB_DATA does not hold mini-imagenet")
def test_the_real_pictures_are_the_published_ones(monkeypatch):
    monkeypatch.undo()
    mini_imagenet.check_listing(REAL)
