"""The one decoded copy of an image set on disk.

Pictures are decoded once into `<cache>/datasets/<name>-<key>/images.npy`, a memory-mapped uint8 array, with everything
else in `index.json` beside it. The key names the source (`Files.key` says how), so a changed source gives a new folder.
A folder appears in one rename when it is whole, and its content is checked against its hash when opened. Who may read
and write it is up to the umask, so that a group can share a cache.
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

Decoded = tuple[Iterable[np.ndarray], Index]  # images [size, size, 3] one after another, and the rest


def cached(name: str, key: str, size: int, decode: Callable[[], Decoded], cache: Path | None = None) -> ImageSet:
    """The image set in the cache folder, made of what `decode` gives if it is not there or damaged."""
    folder = cache_folder(cache) / "datasets" / f"{name}-{key}"
    found = _open(name, folder)  # without a lock, which those who may only read the cache could not take
    if found is None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                found = _open(name, folder) or _build(name, folder, size, decode)
        except OSError as error:
            raise ValueError(
                f"{name}: cannot keep the decoded images in {folder} ({error}); set SIB_CACHE to a folder to write to"
            ) from error
    return found


def _build(name: str, folder: Path, size: int, decode: Callable[[], Decoded]) -> ImageSet:
    """Make `folder` and open it; whoever calls holds its lock, so the name of the folder in the making is free."""
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
    """Write images one after another as a .npy file, uint8 of this shape; an error if there is no room for them.

    No memory map: one that meets a full disk ends the process without a word.
    """
    need = math.prod(shape)
    try:
        if shutil.disk_usage(path.parent).free < need:  # rather now than after minutes, and the disk stays usable
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
    """The image set in `folder`, or None where it is missing, unreadable or does not match its hash."""
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        written = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        found = image_set(name, images, Index(**written["index"]))
        return found if found.sha256 == written["sha256"] else None
    except Exception:  # whatever a broken header leads to: EOFError, SyntaxError, RecursionError, ...
        return None
