"""Keep the decoded pixels of an image set on disk.

Pictures are decoded once into `<cache>/datasets/<name>-<key>/images.npy`, a memory-mapped uint8 array, with everything
else in `index.json` beside it. The key stands for the files that the pictures came from (see `Source.key`), so that
changed files give a new folder. A folder appears in one rename when it is whole, and its content is checked against its
hash each time it is opened. The umask decides who may read and write it, so that a group can share a cache.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from filelock import FileLock

from sibcore.datasets.base import ImageSet, Index, cache_folder, image_set

Decoded = tuple[Iterable[np.ndarray], Index]  # images [size, size, 3] one after another, and everything else


def cached(name: str, key: str, size: int, decode: Callable[[], Decoded], cache: Path | None = None) -> ImageSet:
    """Return the image set that is kept in the cache folder, and make it first if it is missing or damaged.

    Args:
        name: name of the set.
        key: stands for the files that the pictures come from.
        size: height and width of the images, in pixels.
        decode: called to make the images and the index.
        cache: the cache folder, or None for the usual one.
    """
    folder = cache_folder(cache) / "datasets" / f"{name}-{key}"
    found = _open(name, folder)  # without a lock, because some users may only read the cache
    if found:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            return _open(name, folder) or _build(name, folder, size, decode)
    except OSError as error:
        raise ValueError(
            f"{name}: cannot keep decoded images in {folder} ({error}); set SIB_CACHE to a folder that you may write to"
        ) from error


def _build(name: str, folder: Path, size: int, decode: Callable[[], Decoded]) -> ImageSet:
    """Make `folder` and open it. The caller holds its lock, so that no other process uses the scratch folder."""
    scratch = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # left behind by a process that was killed
    try:
        scratch.mkdir()
        decoded, index = decode()
        _save(scratch / "images.npy", decoded, (len(index.labels), size, size, 3))
        images = np.load(scratch / "images.npy", mmap_mode="r", allow_pickle=False)
        written = {"index": dataclasses.asdict(index), "sha256": image_set(name, images, index).sha256}
        (scratch / "index.json").write_text(json.dumps(written), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = _open(name, folder)
    if found is None:
        raise OSError("it was just written but does not match its hash: check the disk, then try again")
    return found


def _save(path: Path, images: Iterable[np.ndarray], shape: tuple[int, ...]) -> None:
    """Write images one after another as a .npy file of this shape, or raise a ValueError if there is no room for them.

    The file is not written through a memory map, because a full disk would end the process without an error.
    """
    need = math.prod(shape)
    try:
        if shutil.disk_usage(path.parent).free < need:  # fail now and not after minutes, with a full disk
            raise OSError(errno.ENOSPC, "no room")
        with path.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for image in images:
                file.write(np.ascontiguousarray(image))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ValueError(
            f"{path.parent.parent}: there is no room for {shape[0]} decoded images, which take {need / 1e6:,.0f} MB; "
            "make room there, or set SIB_CACHE to a folder on a larger disk"
        ) from error


def _open(name: str, folder: Path) -> ImageSet | None:
    """Return the image set in `folder`, or None if it is missing, unreadable or does not match its hash."""
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        written = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        found = image_set(name, images, Index(**written["index"]))
        return found if found.sha256 == written["sha256"] else None
    except Exception:  # a broken header leads to errors of many kinds: EOFError, SyntaxError, RecursionError, ...
        return None
