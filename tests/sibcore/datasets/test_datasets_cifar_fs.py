from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_images import png

from sibcore import datasets
from sibcore.datasets import cifar_fs
from sibcore.datasets import pictures as decoding
from sibcore.datasets._torchvision import torchvision

PER_CLASS = 3
REAL = Path(os.environ.get("SIB_DATA", "/nowhere")) / "cifar-fs.zip"


@pytest.fixture
def pictures(monkeypatch):
    """Random pictures by class name, and CIFAR-FS believing that there are only so few of them."""
    monkeypatch.setattr(cifar_fs, "IMAGES_PER_CLASS", PER_CLASS)
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 256, (PER_CLASS, 32, 32, 3), dtype=np.uint8) for name in cifar_fs.CLASSES}


@pytest.fixture
def archive(pictures, tmp_path):
    path = tmp_path / "data" / "cifar-fs.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        for name, images in pictures.items():
            for number, image in enumerate(images):
                file.writestr(f"cifar100/data/{name}/{number}.png", png(image))
    return path


def rewrite(archive: Path, member: str, content: bytes | None) -> None:
    """Replace one member of a zip, or leave it out."""
    with zipfile.ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist() if name != member}
    members |= {} if content is None else {member: content}
    with zipfile.ZipFile(archive, "w") as file:
        for name in members:
            file.writestr(name, members[name])


def test_the_published_split_has_64_16_and_20_classes_and_none_twice():
    assert {split: len(names) for split, names in cifar_fs.SPLITS.items()} == {"train": 64, "val": 16, "test": 20}
    assert len(set(cifar_fs.CLASSES)) == 100


def test_every_picture_arrives_with_its_class(archive, pictures, tmp_path):
    data = cifar_fs.load(archive, cache=tmp_path)
    assert data.images.shape == (100 * PER_CLASS, 32, 32, 3)
    assert data.images.dtype == np.uint8
    for name, images in pictures.items():
        found = data.images[data.labels == data.classes.index(name)]
        assert {image.tobytes() for image in found} == {image.tobytes() for image in images}


def test_the_rows_of_a_split_are_those_of_its_classes(archive, tmp_path):
    data = cifar_fs.load(archive, cache=tmp_path)
    names = np.array(data.classes)[data.labels]
    for split, classes in data.splits.items():
        rows = data.rows(split)
        assert rows.tolist() == [row for row, name in enumerate(names) if name in classes]
        assert [classes[label] for label in data.split_labels(split)] == names[rows].tolist()


def test_images_are_mapped_from_disk_and_read_only(archive, tmp_path):
    data = cifar_fs.load(archive, cache=tmp_path)
    assert isinstance(data.images, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0


def test_zip_folder_and_torchvision_give_the_same_content(archive, pictures, tmp_path, monkeypatch):
    from_zip = cifar_fs.load(archive, cache=tmp_path / "a")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "unpacked")
    from_folder = cifar_fs.load(tmp_path / "unpacked", cache=tmp_path / "b")

    def cifar100(root, train):
        """As torchvision has it: classes mixed, split into two parts."""
        rows = [(label, image) for label in range(100) for image in pictures[cifar_fs.CLASSES[label]]]
        rows = [rows[number] for number in np.random.default_rng(1).permutation(len(rows))]
        rows = rows[:200] if train else rows[200:]
        return SimpleNamespace(
            data=np.stack([image for _, image in rows]), targets=[label for label, _ in rows], classes=cifar_fs.CLASSES
        )

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", cifar100)
    from_torchvision = cifar_fs.from_torchvision(tmp_path, cache=tmp_path / "c")
    assert from_zip.sha256 == from_folder.sha256 == from_torchvision.sha256
    assert np.array_equal(from_zip.images, from_torchvision.images)


def test_the_second_load_decodes_nothing(archive, tmp_path, monkeypatch):
    first = cifar_fs.load(archive, cache=tmp_path)
    monkeypatch.setattr(decoding, "decode_one", None)
    assert cifar_fs.load(archive, cache=tmp_path).sha256 == first.sha256


@pytest.mark.parametrize("file", ["images.npy", "index.json"])
@pytest.mark.parametrize("damage", [lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b[: len(b) // 2], lambda b: b""])
def test_a_damaged_cache_is_made_again(archive, tmp_path, file, damage):
    first = cifar_fs.load(archive, cache=tmp_path)
    (path,) = (tmp_path / "datasets").glob(f"*/{file}")
    path.write_bytes(damage(path.read_bytes()))
    again = cifar_fs.load(archive, cache=tmp_path)
    assert again.sha256 == first.sha256
    assert np.array_equal(again.images, cifar_fs.load(archive, cache=tmp_path / "other").images)


def test_a_changed_archive_is_decoded_anew(archive, tmp_path):
    first = cifar_fs.load(archive, cache=tmp_path)
    rewrite(archive, "cifar100/data/apple/0.png", png(np.zeros((32, 32, 3), np.uint8)))
    again = cifar_fs.load(archive, cache=tmp_path)
    assert again.sha256 != first.sha256
    assert (again.images == 0).all((1, 2, 3)).sum() == 1


@pytest.mark.parametrize("content", [b"not a picture", b"", None], ids=["text", "empty", "half"])
def test_a_corrupt_picture_is_an_error_that_names_it_and_leaves_nothing(archive, pictures, tmp_path, content):
    half = png(pictures["bee"][1])[:700]
    rewrite(archive, "cifar100/data/bee/1.png", half if content is None else content)
    with pytest.raises(ValueError, match=r"data/bee/1\.png"):
        cifar_fs.load(archive, cache=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_damaged_archive_is_an_error_that_names_the_member_or_the_archive(archive, tmp_path):
    whole = archive.read_bytes()
    start = whole.index(b"data/bee/1.png") + 200  # inside the stored picture
    archive.write_bytes(whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1 :])
    with pytest.raises(ValueError, match=r"data/bee/1\.png is damaged"):
        cifar_fs.load(archive, cache=tmp_path)
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a whole zip archive"):
        cifar_fs.load(archive, cache=tmp_path)


def test_a_class_with_too_few_images_is_an_error_that_names_it(archive, tmp_path):
    rewrite(archive, "cifar100/data/bee/1.png", None)
    with pytest.raises(ValueError, match=f"bee has {PER_CLASS - 1}"):
        cifar_fs.load(archive, cache=tmp_path)


def test_missing_data_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_DATA", str(tmp_path))
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=r"SIB_DATA.*sib data get cifar-fs"):
        datasets.load("cifar-fs")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        datasets.load("cifar-fs", source=tmp_path / "nothing.zip")
    with pytest.raises(FileNotFoundError, match="no whole CIFAR-100"):
        cifar_fs.from_torchvision(tmp_path)


def test_data_are_found_in_the_data_folder_and_in_the_cache_folder(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIB_DATA", str(archive.parent))
    first = datasets.load("cifar-fs")
    monkeypatch.delenv("SIB_DATA")
    shutil.move(archive, tmp_path / "cache" / archive.name)
    assert datasets.load("cifar-fs").sha256 == first.sha256


def test_an_unknown_name_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match="cifar-fs"):
        datasets.load("cifar")


def test_an_unknown_split_is_an_error_that_lists_the_known(archive, tmp_path):
    with pytest.raises(ValueError, match="train, val, test"):
        cifar_fs.load(archive, cache=tmp_path).rows("valid")


@pytest.mark.skipif(not REAL.is_file(), reason="SIB_DATA does not hold cifar-fs.zip")
def test_the_split_written_down_is_that_of_the_published_archive():
    with zipfile.ZipFile(REAL) as file:
        for split, classes in cifar_fs.SPLITS.items():
            published = file.read(f"cifar100/splits/bertinetto/{split}.txt").decode().split()
            assert sorted(published) == sorted(classes)
