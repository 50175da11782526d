from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image
from tiny_images import plain, png, write_files, write_zip

from sibcore import datasets
from sibcore.datasets import folder

SPLITS = b"train: [cat, dog]\nval: [no]\ntest: [007]\n"
FILES = {
    "cat/1.png": png(plain(0)),
    "cat/2.PNG": png(plain(1, 40, 30)),
    "dog/1.png": png(plain(2)),
    "no/1.png": png(plain(3)),
    "007/1.png": png(plain(4)),
    "007/notes.txt": b"not a picture",
    "splits.yaml": SPLITS,
}
LABELS = ["cat", "cat", "dog", "no", "007"]


def load(tmp_path, files=FILES, **options):
    return datasets.load("folder", write_files(tmp_path / "data", files), cache=tmp_path / "cache", **options)


def test_every_picture_arrives_with_its_class_whatever_its_size(tmp_path):
    data = load(tmp_path, size=12)
    assert data.images.shape == (5, 12, 12, 3)
    for number, label in enumerate(LABELS):
        (row,) = np.flatnonzero((data.images == plain(number, 12, 12)).all((1, 2, 3)))
        assert data.classes[data.labels[row]] == label


def test_the_splits_are_those_of_the_file_and_every_name_is_text(tmp_path):
    data = load(tmp_path)
    assert data.splits == {"train": ("cat", "dog"), "val": ("no",), "test": ("007",)}
    assert len(data.rows("train")) == 3


def test_folder_zip_json_and_a_split_file_elsewhere_give_the_same_content(tmp_path):
    pictures = {name: content for name, content in FILES.items() if name != "splits.yaml"}
    as_json = json.dumps({"train": ["cat", "dog"], "val": ["no"], "test": ["007"]}, indent="\t").encode()
    elsewhere = tmp_path / "my splits.yaml"
    elsewhere.write_bytes(SPLITS)
    sources = [
        (write_files(tmp_path / "a", FILES), {}),
        (write_files(tmp_path / "b", pictures | {"splits.json": as_json}), {}),
        (write_files(tmp_path / "c", pictures), {"splits": elsewhere}),
        (write_zip(tmp_path / "d.zip", FILES), {}),
        (write_zip(tmp_path / "e.zip", {f"my-images/{name}": content for name, content in FILES.items()}), {}),
    ]
    assert len({datasets.load("folder", source, tmp_path / "cache", **more).sha256 for source, more in sources}) == 1


def test_a_linked_class_folder_counts(tmp_path):
    plainly = load(tmp_path)
    (tmp_path / "data" / "cat").rename(tmp_path / "cats")
    (tmp_path / "data" / "cat").symlink_to(tmp_path / "cats")
    assert datasets.load("folder", tmp_path / "data", tmp_path / "cache").sha256 == plainly.sha256


def test_another_size_and_other_splits_are_decoded_anew(tmp_path):
    assert load(tmp_path).images.shape[1:] == (84, 84, 3)
    assert load(tmp_path, size=8).images.shape[1:] == (8, 8, 3)
    elsewhere = tmp_path / "other.yaml"
    elsewhere.write_text("train: [no, cat, dog]\ntest: ['007']", encoding="utf-8")
    data = datasets.load("folder", tmp_path / "data", tmp_path / "cache", splits=elsewhere, size=8)
    assert set(data.splits) == {"train", "test"}


def test_a_photograph_taken_sideways_is_turned_upright(tmp_path):
    upright = np.zeros((20, 20, 3), np.uint8)
    upright[:10] = 255  # bright above
    content, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned clockwise by a quarter
    Image.fromarray(np.rot90(upright)).save(content, "JPEG", exif=exif)
    data = load(tmp_path, FILES | {"dog/1.png": content.getvalue()}, size=20)
    dog = data.images[data.labels == data.classes.index("dog")][0]
    assert dog[:8].min() > 200 > 50 > dog[12:].max()


def test_class_folders_in_no_split_are_left_out_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="in no split: mouse"):
        data = load(tmp_path, FILES | {"mouse/1.png": png(plain(9))})
    assert "mouse" not in data.classes
    assert len(data.images) == 5


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"splits.yaml": b"train: [cat, horse]"}, "class horse has no folder horse"),
        ({"splits.yaml": b"train: [cat]\ntest: [dog, cat]"}, "cat in train and test"),
        ({"splits.yaml": b"train: [cat, cat]"}, "cat in train and train"),
        ({"splits.yaml": b"train: [cat]\nvalid: [dog]"}, "called train, val, test, but has train, valid"),
        ({"splits.yaml": b"[cat, dog]"}, "called train, val, test, but has list"),
        ({"splits.yaml": b""}, "called train, val, test, but has"),
        ({"splits.yaml": b"train: cat"}, "train must be a list of class names, but is 'cat'"),
        ({"splits.yaml": b"train: []"}, "train must be a list of class names"),
        ({"splits.yaml": b"train: [cat"}, "neither JSON nor YAML"),
        ({"splits.json": b"{}"}, "json, found 2: "),
        ({"no/1.png": b""}, r"no/1\.png is not a readable picture"),
        ({"splits.yaml": b"train: [cat, empty]", "empty/readme.txt": b""}, "class empty has no folder empty with pict"),
    ],
)
@pytest.mark.parametrize("write", [write_files, write_zip])
@pytest.mark.filterwarnings("ignore:.*in no split")
def test_what_is_wrong_is_named(files, message, write, tmp_path):
    source = write(tmp_path / "data", FILES | files)
    with pytest.raises(ValueError, match=message):
        datasets.load("folder", source, tmp_path / "cache")


def test_an_empty_class_folder_is_named(tmp_path):
    (tmp_path / "data" / "empty").mkdir(parents=True)
    with pytest.raises(ValueError, match="class empty has no folder"):
        load(tmp_path, FILES | {"splits.yaml": b"train: [cat, dog, no, empty]\ntest: ['007']"})


def test_no_folder_or_no_split_file_is_an_error_that_shows_one(tmp_path):
    with pytest.raises(ValueError, match=r"source.*splits\.yaml.*train: \[cat, dog\]"):
        datasets.load("folder")
    with pytest.raises(ValueError, match=r"expected one file splits\.yaml or splits\.json, found none"):
        load(tmp_path, {"cat/1.png": png(plain(0))})
    with pytest.raises(FileNotFoundError, match="does not exist"):
        datasets.load("folder", tmp_path / "nothing")
    with pytest.raises(ValueError, match="at least 1 pixel"):
        load(tmp_path, size=0)


def test_the_five_lines_of_the_docstring_are_true(tmp_path):
    """The example: its files, its splits, its call."""
    example = folder.__doc__
    assert 'datasets.load("folder", source="my-images", size=84)' in example
    files = {f"{name}/1.png": png(plain(0)) for name in ("cat", "dog", "horse", "mouse")}
    splits = b"train: [cat, dog]\nval: [horse]\ntest: [mouse]"
    data = load(tmp_path, files | {"splits.yaml": splits}, size=84)
    assert data.images.shape == (4, 84, 84, 3)
