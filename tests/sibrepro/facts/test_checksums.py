"""Features and checkpoints that come with the project: a flipped bit is an error that names the file."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from killing import killed_at_write

from sibrepro import paths
from sibrepro.facts import checksums
from sibrepro.meta_training import shipped
from sibrepro.meta_training.pretraining import PRETRAIN, Pretraining
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.pacs import banks


def test_the_list_has_every_published_file_and_sha256sum_agrees():
    results = paths.PACKAGE.parents[1] / "results"
    files = [f"{folder}/{file.name}" for folder in ("checkpoints", "features") for file in (results / folder).iterdir()]
    assert sorted(line[66:] for line in (results / "SHA256SUMS").read_text().splitlines()) == sorted(files)
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=results, check=True)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The published results, to be damaged."""
    shutil.copytree(paths.published(), tmp_path / "results", ignore=shutil.ignore_patterns("local"))
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    return tmp_path / "results"


def network():
    return PRETRAIN.published(Pretraining(dataset="cifar-fs", backbone="conv4-64"))


def trained():
    return FEW_SHOT.published(FewShot(features="shipped", test_episodes=5000))


READERS = {
    "features/cifar-fs-conv4-64": shipped.load,
    "features/pacs-fine-tuned": banks.load.__wrapped__,
    "checkpoints/few_shot": lambda: trained().files.checkpoint("best"),
    f"checkpoints/{network().id}": lambda: network().files.path("backbone.safetensors"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("place", [0.5, 1])
@pytest.mark.parametrize("name", READERS)
def test_one_flipped_bit_is_an_error_that_names_the_file(copy, name, place):
    path = copy / f"{name}.safetensors"
    READERS[name]()
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged, or not the published file"):
        READERS[name]()


def test_a_file_that_nobody_published_is_refused(copy):
    (copy / "features" / "mine-conv4-64.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="mine-conv4-64"):
        shipped.load("mine", "conv4-64")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_publishing_that_is_killed_at_any_write_leaves_a_file_that_can_be_read_and_published_again(
    tmp_path, monkeypatch, number
):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    path = paths.published() / "features" / "a.safetensors"
    checksums.write(path, b"old")
    assert killed_at_write(number, lambda: checksums.write(path, b"new"))
    assert checksums.checked(path).read_bytes() in (b"old", b"new")
    checksums.write(path, b"new")
    assert checksums.checked(path).read_bytes() == b"new"
    assert len(checksums.file().read_text().splitlines()) == 1
