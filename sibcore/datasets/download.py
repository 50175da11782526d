"""Download image sets, and only when asked to: `sib data get pacs`."""

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from sibcore.datasets import MODULES, limits, module
from sibcore.datasets.base import cache_folder, find_source
from sibcore.datasets.progress import meter

BLOCK = 1 << 18


def get(name: str, to: Path | None = None, accept_terms: bool = False) -> Path:
    """Download an image set and return the path of its archive or folder.

    Args:
        name: one of `sibcore.datasets.MODULES`.
        to: the folder to save it in; by default the cache folder.
        accept_terms: whether the user accepts the terms of the owners, for a set that has such terms.
    """
    data, folder = module(name), cache_folder(to)
    if not hasattr(data, "URL") and name != "cifar-fs":
        raise ValueError(f"there is nothing to download for {name}: {how_to_get(data)}")
    if hasattr(data, "TERMS") and not accept_terms:
        raise ValueError(f"{name} has terms that you must accept before the download: {data.TERMS}; {data.HELP}")
    try:
        if name == "cifar-fs":
            return _cifar100(folder)
        return fetch(data.URL, folder / f"{name}.zip", data.check_listing)
    except OSError as error:
        raise ValueError(f"{name}: {error}") from error


def overview() -> str:
    """Return a text with three lines for each image set: its name, what it is, and where it is or how to get it."""
    lines = []
    for name in MODULES:
        data = module(name)
        state = how_to_get(data)
        if hasattr(data, "FOUND_AS"):
            try:
                state = f"found: {find_source(name, None, data.FOUND_AS, state)}"
            except FileNotFoundError:
                state = f"not here: {state}"
        about = data.__doc__.partition("\n")[0]
        lines += [name, f"    {about}", f"    {state}"]
    return "\n".join(lines)


def how_to_get(data: ModuleType) -> str:
    """Return what the module of an image set says of how to get it."""
    return getattr(data, "HELP", "its module does not say how to get it (HELP)")


def _cifar100(folder: Path) -> Path:
    """Download CIFAR-100 as torchvision keeps it. The transfer is our own, because torchvision's cannot be resumed."""
    from sibcore.datasets._torchvision import torchvision

    cifar100 = torchvision.datasets.CIFAR100
    unpacked = folder / cifar100.base_folder
    if not unpacked.is_dir():
        fetch(cifar100.url, folder / cifar100.filename, lambda path: check_md5(path, cifar100.tgz_md5))
    cifar100(folder, download=True)  # unpacks the archive that is there, unless that was done before
    return unpacked


def check_md5(path: Path, md5: str) -> None:
    """Raise a ValueError unless the file has this md5, the checksum that CIFAR's authors published."""
    from sibcore.datasets._torchvision import torchvision

    found = torchvision.datasets.utils.calculate_md5(path)
    if found != md5:
        raise ValueError(f"{path} has md5 {found}, the published file has {md5}")


def fetch(url: str, path: Path, check: Callable[[Path], None]) -> Path:
    """Download a file unless it is there already, check it, and return its path.

    The file grows as `<path>.part`, where a broken download goes on later. It is renamed once it is whole and checked.
    A file that is already at `path` is checked as well, but never deleted.

    Args:
        url: the address.
        path: where the file is saved.
        check: raises a ValueError if a file is not the published one.

    Raises:
        ConnectionError: if the download did not succeed; another try may.
        ValueError: if the file is not the published one.
    """
    by_hand = f"or fetch it by other means, save it as {path} and run the same command again"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        found = path if path.exists() else path.with_name(f"{path.name}.part")
        try:
            if found != path:
                _download(url, found)
            check(found)
        except (OSError, http.client.HTTPException, TooSlow) as error:
            why = " ".join(str(error).split())  # on one line
            raise ConnectionError(f"could not fetch {url} ({why}); run the same command again, {by_hand}") from error
        except ValueError as error:
            if found == path:
                raise ValueError(f"{error}; move it away and run the same command again") from error
            found.unlink(missing_ok=True)
            raise ValueError(f"{url} did not give the published file ({error}); try once more, {by_hand}") from error
        return found.replace(path)


def _download(url: str, part: Path) -> None:
    """Fill the file `part`, and connect again as long as each connection makes it longer than it ever was."""
    longest = -1
    for _ in range(limits.CONNECTIONS):
        if _connect(url, part):
            return
        if _size(part) <= longest:
            break
        longest = _size(part)
    raise ConnectionError(f"the connection broke after {_size(part)} bytes")


def _connect(url: str, part: Path) -> bool:
    """Add to the file `part` what one connection gives, and tell whether it is whole then."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.build_opener(_PacedHandler).open(request, timeout=limits.SILENCE)
    except urllib.error.HTTPError as error:
        if not have or error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers["Content-Range"] == f"bytes */{have}":
            return True  # nothing was left to send
        part.unlink()  # it is longer than the file, so it is a part of another one
        return False
    resumed = response.status == HTTPStatus.PARTIAL_CONTENT
    if not resumed:  # a server that does not support ranges sends the file from its beginning
        have = 0
    # the length is None where the server does not know it, as for GitHub's archives
    total = None if response.length is None else have + response.length
    bar = meter(total, part.stem, "B", initial=have, unit_scale=True, unit_divisor=1024)
    with response, bar, part.open("ab" if resumed else "wb") as file:
        while block := _read(response):
            have += len(block)
            if max(have, total or 0) > limits.DOWNLOAD_BYTES:
                part.unlink()
                raise ValueError(
                    f"{url} sends more than {limits.DOWNLOAD_BYTES} bytes, which is not a data set: check the address"
                )
            file.write(block)
            bar.update(len(block))
    return block is not None and total in (None, _size(part))


def _read(response: http.client.HTTPResponse) -> bytes | None:
    """Return the next block: empty at the end of the file, None if the connection broke."""
    try:
        return response.read1(BLOCK)
    except (OSError, http.client.HTTPException):
        return None


def _size(part: Path) -> int:
    """Return the size of a file in bytes, 0 if there is none."""
    return part.stat().st_size if part.exists() else 0


class TooSlow(Exception):
    """A server sends so few bytes that the download would never end."""


class _PacedReader(io.RawIOBase):
    """Reads from a socket, headers included, and raises `TooSlow` if bytes come too slowly for a while.

    The socket's own timeout does not help against a server that sends a byte now and then, because it starts anew with
    each byte.
    """

    def __init__(self, socket: io.RawIOBase) -> None:
        self.socket, self.since, self.count = socket, time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:
        count = self.socket.readinto(buffer)
        self.count += count or 0
        passed = time.monotonic() - self.since
        if count and passed > limits.PACE_SECONDS:
            if self.count < limits.PACE * passed:
                raise TooSlow(f"only {self.count} bytes came in {passed:.0f} seconds")
            self.since, self.count = time.monotonic(), 0
        return count

    def close(self) -> None:
        self.socket.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    """A response that is read through a `_PacedReader`."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.fp = io.BufferedReader(_PacedReader(self.fp.detach()))


class _PacedHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens addresses as urllib does, with a `_PacedResponse`."""

    def do_open(self, connection: Callable, request: urllib.request.Request, **options: object) -> _PacedResponse:
        def paced_connection(*args: object, **kwargs: object) -> http.client.HTTPConnection:
            made = connection(*args, **kwargs)
            made.response_class = _PacedResponse
            return made

        return super().do_open(paced_connection, request, **options)
