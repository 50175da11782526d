"""Folders, zips and lists of splits that are broken or made to do harm: a message, never a hang or a raw error."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_images import plain, png, write_files, write_zip

from sibcore import datasets
from sibcore.datasets import limits
from sibcore.datasets.archive import Source
from sibcore.datasets.folder import read_splits

FILES = {"cat/1.png": png(plain(1)), "dog/1.png": png(plain(2)), "splits.yaml": b"train: [cat]\ntest: [dog]"}


@pytest.fixture(autouse=True)
def no_test_hangs():
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_):
        raise AssertionError("this takes too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def load(source: Path, tmp_path: Path):
    return datasets.load("folder", source, tmp_path / "cache", size=8)


def test_links_that_lead_back_are_passed_over(tmp_path):
    folder = write_files(tmp_path / "data", FILES)
    first = load(folder, tmp_path)
    for number in range(3):  # two are enough for 2^40 ways through them
        (folder / "cat" / f"up{number}").symlink_to("..")
        (folder / "cat" / f"here{number}").symlink_to(".")
    (folder / "itself.png").symlink_to("itself.png")
    with pytest.warns(UserWarning, match=r"broken links: itself\.png"):
        assert Source(folder).names == sorted(FILES)
    with pytest.warns(UserWarning, match="broken links"):
        assert load(folder, tmp_path).sha256 == first.sha256


def test_folders_linked_crosswise_in_countless_ways_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FILES", 10_000)
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
        for other in "abcdefgh".replace(name, ""):
            (tmp_path / name / other).symlink_to(tmp_path / other)
    with pytest.raises(ValueError, match="more than 10000 files: look for a link"):
        Source(tmp_path)


def test_links_to_nothing_are_named_unless_hidden(tmp_path):
    folder = write_files(tmp_path / "data", FILES)
    for name in ("cat/2.png", "cat/.hidden.png", "cat/notes"):
        (folder / name).symlink_to(tmp_path / "nothing")
    with pytest.warns(UserWarning, match=r"broken links: cat/2\.png$"):
        assert len(load(folder, tmp_path).images) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_no_picture(tmp_path):
    folder = write_files(tmp_path / "data", FILES)
    os.mkfifo(folder / "cat" / "2.png")
    assert len(load(folder, tmp_path).images) == 2


def test_a_folder_that_may_not_be_listed_is_an_error_that_names_it(tmp_path, monkeypatch):
    folder, listed = write_files(tmp_path / "data", FILES), Path.iterdir

    def iterdir(self):
        if self.name == "dog":
            raise PermissionError(13, "Permission denied", str(self))
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(ValueError, match=r"cannot list .*dog"):
        load(folder, tmp_path)


def test_other_errors_of_the_system_are_messages_too(tmp_path, monkeypatch):
    def broken(self):
        raise OSError(5, "Input/output error", str(self))

    folder = write_files(tmp_path / "data", FILES)
    with pytest.raises(ValueError, match=r"folder: .*No such file.*nowhere\.yaml"):
        datasets.load("folder", folder, tmp_path, splits=tmp_path / "nowhere.yaml")
    monkeypatch.setattr(Path, "is_file", broken)
    with pytest.raises(ValueError, match=r"folder: .*Input/output error"):
        load(folder, tmp_path)


def test_a_source_that_links_to_itself_is_missing(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "loop", tmp_path)


def patched(files: dict[str, bytes], local: int, central: int, value: bytes, path: Path) -> Path:
    """A zip with bytes changed in both headers of its first member, at these offsets."""
    content = bytearray(write_zip(path, files).read_bytes())
    for start, offset in ((content.index(b"PK\3\4"), local), (content.index(b"PK\1\2"), central)):
        content[start + offset : start + offset + len(value)] = value
    path.write_bytes(content)
    return path


def test_an_encrypted_member_is_an_error_that_names_it(tmp_path):
    path = patched(FILES, 6, 8, b"\1\0", tmp_path / "a.zip")
    with pytest.raises(ValueError, match=r"a\.zip: cat/1\.png is encrypted; unpack"):
        load(path, tmp_path)


def test_members_with_strange_flags_are_errors_that_name_them(tmp_path):
    path = patched(FILES, 6, 8, b"\x20\0", tmp_path / "a.zip")  # "compressed patched data"
    with pytest.raises(ValueError, match=r"a\.zip: cat/1\.png is damaged or unreadable"):
        load(path, tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 9, 99])
def test_a_member_packed_by_another_method_is_an_error_that_names_it(method, tmp_path):
    path = patched(FILES, 8, 10, bytes([method, 0]), tmp_path / "a.zip")
    with pytest.raises(ValueError, match=rf"cat/1\.png is packed by a method other than deflate \(number {method}\)"):
        load(path, tmp_path)


@pytest.mark.thorough
def test_a_member_that_unpacks_to_too_much_is_an_error_that_names_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/1.png", FILES["cat/1.png"])
        archive.writestr("splits.yaml", FILES["splits.yaml"])
        with archive.open("dog/1.png", "w") as file:
            for _ in range(limits.FILE_BYTES // (1 << 20) + 1):
                file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"dog/1\.png is too large"):
        load(tmp_path / "a.zip", tmp_path)


def test_a_member_that_admits_to_be_too_large_is_not_even_opened(tmp_path, monkeypatch):
    files = Source(write_zip(tmp_path / "a.zip", FILES))
    monkeypatch.setattr(files, "_open", None)
    with pytest.raises(ValueError, match=r"cat/1\.png is too large: expected at most 10 bytes"):
        files.read("cat/1.png", 10)


def test_an_archive_for_readers_of_the_future_is_a_message(tmp_path):
    with pytest.raises(ValueError, match=r"a\.zip is not a whole zip archive \(zip file version 9\.9\)"):
        load(patched(FILES, 4, 6, b"\x63\0", tmp_path / "a.zip"), tmp_path)


def test_what_the_archive_says_about_a_size_does_not_count(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(1 << 20))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    start = content.index(b"PK\1\2") + 24
    content[start : start + 4] = (100).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.png is damaged"):
        Source(tmp_path / "a.zip").read("a.png", 1000)


def test_a_file_that_grew_since_it_was_listed_is_not_read_past_the_limit(tmp_path):
    files = Source(write_files(tmp_path, {"a.png": b"?"}))
    (tmp_path / "a.png").write_bytes(bytes(2000))
    with pytest.raises(ValueError, match=r"a\.png is too large: expected at most 1000 bytes"):
        files.read("a.png", 1000)


@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3), cut=st.integers(0, 2000))
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_zip_is_read_or_a_message(changes, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    content = bytearray(write_zip(folder / "a.zip", FILES).read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    (folder / "a.zip").write_bytes(content[: len(content) - (cut if cut % 4 == 0 else 0)])
    with contextlib.suppress(ValueError):  # any other error would be a raw one
        load(folder / "a.zip", folder)


LAUGHS = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 9)) for name in b"bcdefghij"
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LAUGHS + b"train: *j\n", "aliases such as"),
        (b"train: &a [*a]\n", "aliases such as"),
        (b"train: " + b"[" * 5000, "neither JSON nor YAML"),
        (b"train: [caf\xe9]", "neither JSON nor YAML"),
        (b"train: [" + b"a, " * 100_000 + b"a]", "too large"),
        (b"train: {a: [" + b"b, " * 1000 + b"b]}", "train must be a list of class names, but is {'a': "),
    ],
    ids=["laughs", "itself", "deep", "latin-1", "long", "other"],
)
def test_a_harmful_list_of_splits_is_a_short_message(content, message, tmp_path):
    folder = write_files(tmp_path / "data", FILES | {"splits.yaml": content})
    with pytest.raises(ValueError, match=message) as error:
        load(folder, tmp_path)
    assert "splits.yaml" in str(error.value)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"train": [' + b"9" * 10_000 + b"]}", b'{"train": "\xff"}'])
def test_a_harmful_json_is_a_message(content):
    with pytest.raises(ValueError, match=r"a\.json is neither JSON nor YAML"):
        read_splits(content, "a.json")


def test_a_table_that_is_not_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"train\.csv is not a text in UTF-8"):
        datasets.load("mini-imagenet", write_files(tmp_path, {"train.csv": b"\xff\xfe\0"}))


def test_a_zip_of_nothing_but_its_end_is_read(tmp_path):
    with zipfile.ZipFile(content := io.BytesIO(), "w"):
        pass
    (tmp_path / "a.zip").write_bytes(content.getvalue())
    assert Source(tmp_path / "a.zip").names == []
