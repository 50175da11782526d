"""The files below a folder or inside a zip, which may be broken or made to do harm: what is wrong is a ValueError."""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from sibcore.datasets import limits
from sibcore.datasets.base import few

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
DECODING = 2  # counts the changes of how pictures become pixels, after which what was decoded before is out of date


class Files:
    """One way to list, read and fingerprint a folder and a zip."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._zip = _open_zip(self.path) if self.path.is_file() else None
        if self._zip:
            self._stamps = {
                i.filename: (i.file_size, i.CRC) for i in self._zip.infolist() if i.filename and not i.is_dir()
            }
        else:
            found = _walk(self.path)
            self._stamps = {name: (s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found.items()}
        self.names = sorted(self._stamps)

    def pictures(self, below: str = "") -> list[str]:
        """The names of all pictures below a folder, apart from hidden ones."""
        prefix = f"{below}/" if below else ""
        return [name for name in self.names if name.startswith(prefix) and _is_picture(name)]

    def __contains__(self, name: str) -> bool:
        return name in self._stamps

    def has_folder(self, name: str) -> bool:
        """Whether there is such a folder, be it empty."""
        if self._zip:
            return any(entry.startswith(f"{name}/") for entry in self._zip.namelist())
        return (self.path / name).is_dir()

    def read(self, name: str, most: int = limits.FILE_BYTES) -> bytes:
        """The content of a file; an error if it has more than `most` bytes, whatever the archive says."""
        size, content = self._stamps[name][0], b""
        if size <= most:
            try:
                with self._open(name) as file:
                    content = file.read(most + 1)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
                raise ValueError(f"{self.path}: {name} is damaged or unreadable ({error}); fetch it again") from error
            size = len(content)
        if size > most:
            raise ValueError(f"{self.path}: {name} is too large: at most {most} bytes of a file like this are read")
        return content

    def text(self, name: str) -> str:
        try:
            return self.read(name, limits.TEXT_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: {name} is not a text in UTF-8 ({error}); save it as one") from error

    def check_listing(self, places: Mapping[str, str], known: str) -> None:
        """An error unless the files {place: name} are, bit by bit, those whose `sha256sum` has the sha256 `known`."""
        lines = [f"{hashlib.sha256(self.read(name)).hexdigest()}  {place}" for place, name in places.items()]
        # a listing is the same listing with or without its last line's end
        found = [hashlib.sha256("\n".join(text).encode()).hexdigest() for text in (lines, [*lines, ""])]
        if known not in found:
            listing = f"the listing of its {len(lines)} pictures has sha256 {found[1]}"
            raise ValueError(f"{self.path}: {listing}, the published one has {known}")

    def key(self, *details: object) -> str:
        """Hash of names, sizes and checksums, and of the `details` of the decoding.

        In a folder, where reading all would take long, the times of the last write and of the last change of any kind
        stand for the checksum. No program can set the latter, so that every write to a file gives a new key, as does a
        copy of the folder. (Windows has no such time: there, size and time of the last write must tell.)
        """
        listing = [(name, *self._stamps[name]) for name in self.names]
        return hashlib.sha256(repr((DECODING, listing, details)).encode()).hexdigest()[:12]

    def _open(self, name: str) -> IO[bytes]:
        if not self._zip:
            return (self.path / name).open("rb")
        member = self._zip.getinfo(name)
        encrypted, usual = member.flag_bits & 1, member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if encrypted or not usual:  # bzip2 and LZMA would be unpacked without regard to a limit
            why = "encrypted" if encrypted else f"packed by a method other than deflate (number {member.compress_type})"
            raise ValueError(f"{self.path}: {name} is {why}; unpack the archive and name its folder instead")
        return self._zip.open(member)


def hidden(name: str) -> bool:
    """Whether a file is hidden, or one of those that macOS puts into a zip."""
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def _is_picture(name: str) -> bool:
    return name.lower().endswith(PICTURES) and not hidden(name)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # beside BadZipFile whatever a broken table of contents leads to
        raise ValueError(f"{path} is not a whole zip archive ({error}); fetch it again") from error


def _walk(top: Path) -> dict[str, os.stat_result]:
    """The regular files below a folder; links to folders are followed, too, as class folders may lie elsewhere."""
    files, nowhere, seen = {}, [], 0
    todo = [(top, frozenset())]  # folders, each with the identities of those that it lies in
    while todo:
        folder, around = todo.pop()
        try:
            identity = (folder.stat().st_dev, folder.stat().st_ino)
            entries = [] if identity in around else list(folder.iterdir())  # a link back leads round in circles
        except OSError as error:
            raise ValueError(f"{top}: cannot list {folder} ({error}); make it readable or take it out") from error
        seen += len(entries)
        if seen > limits.FILES:  # also when links lead from folder to folder in ever new ways
            raise ValueError(f"{top}: there are more than {limits.FILES} files; is a link leading astray?")
        for entry in entries:
            name = entry.relative_to(top).as_posix()
            try:
                status = entry.stat()
            except OSError:
                nowhere += [name] if _is_picture(name) else []
                continue
            if stat.S_ISREG(status.st_mode):
                files[name] = status
            elif stat.S_ISDIR(status.st_mode):
                todo.append((entry, around | {identity}))
    if nowhere:
        warnings.warn(f"{top}: left out, being links that lead nowhere: {few(sorted(nowhere))}", stacklevel=4)
    return files
