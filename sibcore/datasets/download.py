"""Fetch data sets, and only when asked to: `sib data get pacs`."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from filelock import FileLock

from sibcore.datasets import MODULES, limits, module
from sibcore.datasets.base import cache_folder, find_source
from sibcore.datasets.progress import meter

BLOCK = 1 << 18


def get(name: str, to: Path | None = None, accept_terms: bool = False) -> Path:
    """Download the data set `name` into the folder `to` (default: the cache folder) and return where it is.

    `accept_terms` says that the user accepts the terms of its owners, for a set that has such terms.
    """
    data, folder = module(name), cache_folder(to)
    if not hasattr(data, "FOUND_AS"):
        raise ValueError(f"there is nothing to download for {name}: {data.HELP}")
    if hasattr(data, "TERMS") and not accept_terms:
        raise ValueError(f"{name} is downloaded only for those who accept its terms: {data.TERMS}; {data.HELP}")
    try:
        if hasattr(data, "URL"):
            return fetch(data.URL, folder / f"{name}.zip", data.check_listing)
        return _cifar100(folder)
    except OSError as error:
        raise ValueError(f"{name}: {error}") from error


def overview() -> str:
    """Every data set: what it is, and where it was found or how to get it."""
    return "\n".join(f"{name}\n    {about}\n    {state}" for name, about, state in map(_describe, MODULES))


def _describe(name: str) -> tuple[str, str, str]:
    data = module(name)
    about = data.__doc__.partition("\n")[0]
    if not hasattr(data, "FOUND_AS"):
        return name, about, data.HELP
    try:
        return name, about, f"found: {find_source(name, None, data.FOUND_AS, data.HELP)}"
    except FileNotFoundError:
        return name, about, f"not here: {data.HELP}"


def _cifar100(folder: Path) -> Path:
    """CIFAR-100 as torchvision keeps it, whose checksums it uses; only the transfer is ours, to be resumable."""
    from sibcore.datasets._torchvision import torchvision

    cifar100 = torchvision.datasets.CIFAR100
    unpacked = folder / cifar100.base_folder
    if not unpacked.is_dir():
        fetch(cifar100.url, folder / cifar100.filename, lambda path: check_md5(path, cifar100.tgz_md5))
    cifar100(folder, download=True)  # finds the archive there and unpacks it, or finds all done
    return unpacked


def check_md5(path: Path, md5: str) -> None:
    from sibcore.datasets._torchvision import torchvision

    found = torchvision.datasets.utils.calculate_md5(path)
    if found != md5:
        raise ValueError(f"{path} has md5 {found}, the published file has {md5}")


def fetch(url: str, path: Path, check: Callable[[Path], None]) -> Path:
    """The file at `url`, saved as `path`, if `check(file)` raises no ValueError.

    It grows in `<path>.part`, where a broken download goes on later, and is renamed once it is whole and checked.
    A file that is already at `path` is checked, too, but never deleted.
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
    """Fill `part`, connecting again as long as each connection brings the file further."""
    best = -1
    for _ in range(limits.CONNECTIONS):
        if _connect(url, part):
            return
        if _size(part) <= best:
            break
        best = _size(part)
    raise ConnectionError(f"the connection broke after {_size(part)} bytes")


def _connect(url: str, part: Path) -> bool:
    """Add to `part` what one connection gives; whether the file is whole then."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.build_opener(_Handler).open(request, timeout=limits.SILENCE)
    except urllib.error.HTTPError as error:
        if not have or error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers["Content-Range"] == f"bytes */{have}":
            return True  # nothing was left to send
        part.unlink()  # longer than the file, so a part of something else
        return False
    with response:
        resumed = response.status == HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0  # a server that knows no ranges begins with the first byte
        # the length is None where the server does not know it, as for GitHub's archives
        total = None if response.length is None else have + response.length
        bar = meter(total, part.stem, "B", initial=have, unit_scale=True, unit_divisor=1024)
        with bar, part.open("ab" if resumed else "wb") as file:
            while block := _read(response):
                have += len(block)
                if max(have, total or 0) > limits.DOWNLOAD_BYTES:
                    part.unlink()
                    raise ValueError(f"{url} gives more than {limits.DOWNLOAD_BYTES} bytes, so it is no data set")
                file.write(block)
                bar.update(len(block))
    return block is not None and total in (None, _size(part))


def _read(response: http.client.HTTPResponse) -> bytes | None:
    """The next block: empty at the end, None where the connection broke."""
    try:
        return response.read1(BLOCK)
    except (OSError, http.client.HTTPException):
        return None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


class TooSlow(Exception):
    """A server sends so little that the download would never end."""


class _Paced(socket.SocketIO):
    """The bytes of a socket, headers and all, as long as they come at a fair pace.

    The timeout of the socket is no help against a server that sends a byte now and then: each lets it start anew.
    """

    def readinto(self, buffer: memoryview) -> int | None:
        count = super().readinto(buffer)
        self.count += count or 0
        passed = time.monotonic() - self.since
        if count and passed > limits.PACE_SECONDS:
            if self.count < limits.PACE * passed:
                raise TooSlow(f"only {self.count} bytes came in {passed:.0f} seconds")
            self.since, self.count = time.monotonic(), 0
        return count


class _Response(http.client.HTTPResponse):
    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.fp.raw.__class__ = _Paced  # the same socket, read in another way
        self.fp.raw.since, self.fp.raw.count = time.monotonic(), 0


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens addresses as the handlers of urllib do, with a `_Response`."""

    def do_open(self, kind: type[http.client.HTTPConnection], *args: object, **options: object) -> _Response:
        return super().do_open(type("Paced", (kind,), {"response_class": _Response}), *args, **options)
