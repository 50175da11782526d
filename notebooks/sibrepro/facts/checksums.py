"""The list of what the features and checkpoints that come with the project are, byte by byte.

`results/SHA256SUMS` has a line for each, as `sha256sum` writes them (`cd results && sha256sum -c SHA256SUMS`). Who
reads such a file asks `checked` first: one that is damaged, or that nobody published, is an error that names it.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from sibcore.files import sha256, write_atomically
from sibrepro import paths


def file() -> Path:
    return paths.published() / "SHA256SUMS"


def stamp(file: Path) -> tuple[int, ...]:
    """Part of a cache's key: a file written anew is read anew."""
    known = file.stat()
    return known.st_mtime_ns, known.st_size, known.st_ino


def checked(path: Path) -> Path:
    """`path`, if its content is the published one."""
    found = _sha256(path, stamp(path))
    if (found, _name(path)) not in _lines():
        raise ValueError(
            f"{paths.relative(path)} is damaged, or not the published file: {paths.relative(file())} has no line for "
            f"it with sha256 {found}; take both again (git checkout)"
        )
    return path


def write(path: Path, content: bytes) -> None:
    """Publish a file. Until it is there the list has its old and its new line, so that a kill at any moment is none."""
    line = (hashlib.sha256(content).hexdigest(), _name(path))
    _put({*_lines(), line})
    write_atomically(path, content)
    _put({old for old in _lines() if old[1] != line[1]} | {line})


def _name(path: Path) -> str:
    return path.relative_to(paths.published()).as_posix()


def _lines() -> set[tuple[str, str]]:
    """(sha256, name) of each line."""
    text = file().read_text(encoding="utf-8") if file().is_file() else ""
    return {(line[:64], line[66:]) for line in text.splitlines()}


def _put(lines: set[tuple[str, str]]) -> None:
    ordered = sorted(lines, key=lambda line: line[::-1])
    write_atomically(file(), "".join(f"{sha}  {name}\n" for sha, name in ordered).encode())


@functools.lru_cache(maxsize=64)
def _sha256(path: Path, _: tuple[int, ...]) -> str:
    """Once for each version of a file."""
    return sha256(path)
