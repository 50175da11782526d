"""The decoded copy on disk: never stale, never half, shared where the umask allows it."""

from __future__ import annotations

import collections
import errno
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_images import plain, png, write_files

from sibcore import datasets
from sibcore.datasets import cache, pictures

FILES = {f"cat/{number}.png": png(plain(number)) for number in range(40)} | {"splits.yaml": b"train: [cat]"}
Usage = collections.namedtuple("Usage", "total used free")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the rights of root")


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "data", FILES)


def load(folder: Path, to: Path, size: int = 64):
    return datasets.load("folder", folder, to, size=size)


def left(to: Path) -> list[str]:
    return [path.name for path in to.rglob("*") if path.name != "datasets" and path.suffix != ".lock"]


def test_a_picture_changed_at_equal_size_and_time_is_decoded_anew(folder, tmp_path):
    path = folder / "cat" / "1.png"
    before, first = path.stat(), load(folder, tmp_path / "cache")
    path.write_bytes(png(plain(99)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    again = load(folder, tmp_path / "cache")
    assert again.sha256 != first.sha256
    assert (again.images == plain(99, 64, 64)).all((1, 2, 3)).any()


def test_what_was_decoded_by_older_rules_is_not_used(folder, tmp_path, monkeypatch):
    load(folder, tmp_path)
    monkeypatch.setattr("sibcore.datasets.archive.DECODING", -1)
    load(folder, tmp_path)
    assert len([*(tmp_path / "datasets").glob("folder-*/index.json")]) == 2


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


MESSAGE = r"datasets: there is no room for 40 decoded images, which take \d+ MB; .*SIB_CACHE"


@root
@pytest.mark.parametrize("told", [True, False], ids=["the system tells", "it does not tell"])
def test_a_full_disk_is_an_error_that_says_how_much_is_needed_where(told, folder, small_disk, monkeypatch):
    if told:
        monkeypatch.setattr(pictures, "decode_one", None)  # it is told before the first picture
    else:
        monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: Usage(1 << 40, 0, 1 << 40))
    with pytest.raises(ValueError, match=MESSAGE):
        load(folder, small_disk)
    assert left(small_disk) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_decoding_is_the_same_error(code, folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(ValueError, match=MESSAGE):
        load(folder, tmp_path / "cache")
    assert left(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_setting(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot keep decoded images in .*set SIB_CACHE"):
        load(folder, tmp_path / "file")


def test_what_a_killed_process_left_behind_is_cleared_away(folder, tmp_path):
    load(folder, tmp_path / "cache")
    (made,) = (path for path in (tmp_path / "cache" / "datasets").glob("folder-*") if path.is_dir())
    made.rename(made.with_name(f".{made.name}.part"))
    load(folder, tmp_path / "cache")
    assert sorted(left(tmp_path / "cache")) == sorted([made.name, "images.npy", "index.json"])


def test_a_broken_picture_ends_the_decoding_soon(folder, tmp_path, monkeypatch):
    """Not after all the others have been decoded."""
    seen, decode_one = [], pictures.decode_one
    monkeypatch.setattr(pictures, "AT_ONCE", 4)
    monkeypatch.setattr(pictures, "decode_one", lambda *a: seen.append(a) or decode_one(*a))
    (folder / "cat" / "0.png").write_bytes(b"?")
    with pytest.raises(ValueError, match=r"cat/0\.png"):
        load(folder, tmp_path / "cache")
    assert len(seen) <= 4


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_modes_follow_the_umask(umask, folder, tmp_path):
    before = os.umask(umask)
    try:
        load(folder, tmp_path / "cache")
    finally:
        os.umask(before)
    for path in (tmp_path / "cache").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask


def by_another_user(call: Callable[[], str]) -> str:
    """What `call` returns, or the error it raises, in a process of the user nobody."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:  # modules are imported already; those of the interpreter may be closed to others
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            text = call()
        except BaseException as error:
            text = repr(error)
        os.write(send, text.encode())
        os._exit(0)
    os.close(send)
    os.waitpid(child, 0)
    with os.fdopen(receive) as pipe:
        return pipe.read()


@root
def test_two_users_share_a_cache(monkeypatch):
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory() as shared:  # not below tmp_path, which is private to one user
        data, to = write_files(Path(shared) / "data", FILES), Path(shared) / "cache"
        Path(shared).chmod(0o755)
        try:
            first = load(data, to, 8)
            with monkeypatch.context() as patch:
                patch.setattr(pictures, "decode_one", None)
                assert by_another_user(lambda: load(data, to, 8).sha256) == first.sha256
            refused = by_another_user(lambda: load(data, to, 9).sha256)  # the folder is root's alone to write to
            assert refused.startswith("ValueError")
            assert "folder: cannot keep decoded images in" in refused
            (to / "datasets").chmod(0o777)
            written = by_another_user(lambda: load(data, to, 9).sha256)
        finally:
            os.umask(before)
        monkeypatch.setattr(pictures, "decode_one", None)
        assert written == load(data, to, 9).sha256
