"""Read files from a folder or a zip. One that is damaged, or made to do harm, leads to a ValueError."""

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
DECODING = 2  # the version of how pictures become pixels: raised, it makes cached pixels out of date


class Source:
    """A folder or a zip with files in it, to be listed, read and fingerprinted in one way.

    `names` are the paths of all files from its top, sorted, with "/" between folders.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._zip = _open_zip(self.path) if self.path.is_file() else None
        # of each file its size, and what changes when it is written
        self._stamps: dict[str, tuple[int, ...]] = {}
        if self._zip:
            for entry in self._zip.infolist():
                if entry.filename and not entry.is_dir():
                    self._stamps[entry.filename] = (entry.file_size, entry.CRC)
        else:
            for name, status in _walk(self.path).items():
                self._stamps[name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        self.names = sorted(self._stamps)

    def pictures(self, below: str = "") -> list[str]:
        """Return the names of all pictures, or of those below a folder, without hidden ones."""
        prefix = f"{below}/" if below else ""
        return [name for name in self.names if name.startswith(prefix) and _is_picture(name)]

    def __contains__(self, name: str) -> bool:
        return name in self._stamps

    def read(self, name: str, most: int = limits.FILE_BYTES) -> bytes:
        """Return the content of a file. Raise a ValueError if it is damaged or has more than `most` bytes.

        The limit holds whatever size an archive claims for the file.
        """
        size, content = self._stamps[name][0], b""
        if size <= most:
            try:
                with self._open(name) as file:
                    content = file.read(most + 1)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
                raise ValueError(f"{self.path}: {name} is damaged or unreadable ({error}); fetch it again") from error
            size = len(content)
        if size > most:
            raise ValueError(f"{self.path}: {name} is too large: expected at most {most} bytes")
        return content

    def text(self, name: str) -> str:
        """Return the content of a text file in UTF-8."""
        try:
            return self.read(name, limits.TEXT_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: {name} is not a text in UTF-8 ({error}); save it as one") from error

    def check_listing(self, places: Mapping[str, str], known: str) -> None:
        """Raise a ValueError unless the files are, bit by bit, those that were published.

        Args:
            places: for each published path, the name of the file here.
            known: the sha256 of the published listing, a line `<sha256 of the file>  <path>` for each file, as the
                command `sha256sum` prints it.
        """
        lines = [f"{hashlib.sha256(self.read(name)).hexdigest()}  {place}" for place, name in places.items()]
        listing = "\n".join(lines).encode()
        # a listing counts as the same with or without the end of its last line
        found = [hashlib.sha256(text).hexdigest() for text in (listing, listing + b"\n")]
        if known not in found:
            said = f"the listing of its {len(lines)} pictures has sha256 {found[1]}"
            raise ValueError(f"{self.path}: {said}, the published one has {known}")

    def key(self, *details: object) -> str:
        """Return twelve hex digits that change with any file, and with `details` of how pictures are decoded.

        For a zip, the checksums inside tell a changed file. Reading a whole folder would take long, so the times of the
        last write and of the last change of any kind stand for the checksum. No program can set the latter: every
        write to a file gives a new key, and so does a copy of the folder. Windows has no such time; there only size
        and time of the last write can tell.
        """
        listing = [(name, *self._stamps[name]) for name in self.names]
        return hashlib.sha256(repr((DECODING, listing, details)).encode()).hexdigest()[:12]

    def _open(self, name: str) -> IO[bytes]:
        """Open a file. Refuse zip members that could be unpacked to any size before a limit is met."""
        if not self._zip:
            return (self.path / name).open("rb")
        member = self._zip.getinfo(name)
        why = ""
        if member.flag_bits & 1:
            why = "encrypted"
        elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # bzip2 and LZMA know no limit
            why = f"packed by a method other than deflate (number {member.compress_type})"
        if why:
            raise ValueError(f"{self.path}: {name} is {why}; unpack the archive and name its folder instead")
        return self._zip.open(member)


def hidden(name: str) -> bool:
    """Tell whether a file or a folder around it is hidden, or is one that macOS adds to a zip."""
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def _is_picture(name: str) -> bool:
    """Tell whether a name is that of a picture, by its ending."""
    return name.lower().endswith(PICTURES) and not hidden(name)


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip, or raise a ValueError if its table of contents cannot be read."""
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # not only BadZipFile: a broken table of contents leads to errors of many kinds
        raise ValueError(f"{path} is not a whole zip archive ({error}); fetch it again") from error


def _walk(top: Path) -> dict[str, os.stat_result]:
    """Return the regular files below a folder by name.

    Links to folders are followed, because class folders may be kept elsewhere. `os.walk` would follow a link that leads
    back to a folder around it without end.
    """
    files, broken_links, seen = {}, [], 0
    todo = [(top, frozenset())]  # folders, each with the identities of the folders around it
    while todo:
        folder, around = todo.pop()
        try:
            identity = (folder.stat().st_dev, folder.stat().st_ino)
            entries = [] if identity in around else list(folder.iterdir())
        except OSError as error:
            raise ValueError(f"{top}: cannot list {folder} ({error}); make it readable or move it away") from error
        seen += len(entries)
        if seen > limits.FILES:  # links can also lead from folder to folder in ever new ways
            raise ValueError(
                f"{top} has more than {limits.FILES} files: look for a link that leads to a large folder, and remove it"
            )
        for entry in entries:
            name = entry.relative_to(top).as_posix()
            try:
                status = entry.stat()
            except OSError:
                broken_links.append(name)
                continue
            if stat.S_ISREG(status.st_mode):
                files[name] = status
            elif stat.S_ISDIR(status.st_mode):
                todo.append((entry, around | {identity}))
    broken_pictures = sorted(filter(_is_picture, broken_links))
    if broken_pictures:
        warnings.warn(f"{top}: left out broken links: {few(broken_pictures)}", stacklevel=4)
    return files
