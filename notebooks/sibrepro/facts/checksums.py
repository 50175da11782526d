"""The checksums of the features and checkpoints that come with the project.

`results/SHA256SUMS` has a line for each of these files, in the format of `sha256sum` (to check them all by hand:
`cd results && sha256sum -c SHA256SUMS`). Code that reads such a file passes its path through `checked` first, so that a
damaged file, or one that was never published, is an error that names the file.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from sibcore.files import sha256, write_atomically
from sibrepro import paths


def file() -> Path:
    """Return where the list of checksums is."""
    return paths.published() / "SHA256SUMS"


def stamp(file: Path) -> tuple[int, ...]:
    """Return the time, size and inode of a file. As part of a cache's key they make a changed file be read again."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def checked(path: Path) -> Path:
    """Return `path` if the file's content is the published one; raise a ValueError otherwise."""
    found = _sha256(path, stamp(path))
    if (found, _name(path)) not in _lines():
        raise ValueError(
            f"{paths.relative(path)} is damaged, or not the published file: {paths.relative(file())} does not list its "
            f"sha256 {found}. Restore both files with git checkout"
        )
    return path


def write(path: Path, content: bytes) -> None:
    """Write a published file and its line in the list.

    While the file is being replaced the list has both its old and its new checksum, so that the two agree even if the
    process is killed in between.
    """
    line = (hashlib.sha256(content).hexdigest(), _name(path))
    _put({*_lines(), line})
    write_atomically(path, content)
    _put({old for old in _lines() if old[1] != line[1]} | {line})


def _name(path: Path) -> str:
    """Return the path as the list has it."""
    return path.relative_to(paths.published()).as_posix()


def _lines() -> set[tuple[str, str]]:
    """Return the list as pairs of sha256 and name."""
    text = file().read_text(encoding="utf-8") if file().is_file() else ""
    return {(line[:64], line[66:]) for line in text.splitlines()}


def _put(lines: set[tuple[str, str]]) -> None:
    """Write the list, sorted by name."""
    ordered = sorted(lines, key=lambda line: line[::-1])
    write_atomically(file(), "".join(f"{sha}  {name}\n" for sha, name in ordered).encode())


@functools.lru_cache(maxsize=64)
def _sha256(path: Path, _: tuple[int, ...]) -> str:
    """Return the hash of a file, computed once for each version of it."""
    return sha256(path)
