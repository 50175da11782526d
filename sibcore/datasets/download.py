"""Fetch data sets, and only when asked to: `sib data get pacs`."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from filelock import FileLock

from sibcore.datasets import MODULES, cifar_fs, module, pacs
from sibcore.datasets.base import cache_folder, find_source
from sibcore.progress import meter

BLOCK = 1 << 18
TIMEOUT = 30  # seconds without a byte


def get(name: str, to: Path | None = None) -> Path:
    """Download the data set `name` into the folder `to` (default: the cache folder) and return where it is."""
    help = module(name).HELP
    if name not in GETTERS:
        raise ValueError(f"there is nothing to download for {name}: {help}")
    try:
        return GETTERS[name](cache_folder(to))
    except OSError as error:
        raise ValueError(f"{name}: {error}") from error


def overview() -> str:
    """Every data set: what it is, and where it was found or how to get it."""
    return "\n".join(f"{name}\n    {about}\n    {state}" for name, about, state in map(_describe, sorted(MODULES)))


def _describe(name: str) -> tuple[str, str, str]:
    data = module(name)
    about = data.__doc__.partition("\n")[0]
    if not hasattr(data, "FOUND_AS"):
        return name, about, data.HELP
    try:
        return name, about, f"found: {find_source(name, None, data.FOUND_AS, data.HELP)}"
    except FileNotFoundError:
        return name, about, f"not here: {data.HELP}"


def _get_cifar_fs(folder: Path) -> Path:
    """CIFAR-100 as torchvision keeps it, whose checksums it uses; only the transfer is ours, to be resumable."""
    from sibcore.vision._torchvision import torchvision

    cifar100 = torchvision.datasets.CIFAR100
    unpacked = folder / cifar100.base_folder
    if not unpacked.is_dir():
        fetch(cifar100.url, folder / cifar100.filename, lambda path: check_md5(path, cifar100.tgz_md5))
    cifar100(folder, download=True)  # finds the archive there and unpacks it, or finds all done
    return unpacked


def _get_pacs(folder: Path) -> Path:
    return fetch(pacs.URL, folder / "pacs.zip", pacs.check_listing)


GETTERS = {cifar_fs.NAME: _get_cifar_fs, pacs.NAME: _get_pacs}


def check_md5(path: Path, md5: str) -> None:
    with path.open("rb") as file:
        digest = hashlib.md5(usedforsecurity=False)
        while block := file.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != md5:
        raise ValueError(f"{path} has md5 {digest.hexdigest()}, the published file has {md5}")


def fetch(url: str, path: Path, check: Callable[[Path], None]) -> Path:
    """The file at `url`, saved as `path`, if `check(file)` raises no ValueError.

    It grows in `<path>.part`, where a broken download goes on later, and is renamed once it is whole and checked.
    A file that is already at `path` is checked, too, but never deleted.
    """
    by_hand = f"or fetch it by other means, save it as {path} and run the same command again"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with FileLock(f"{path}.lock"):
        if path.exists():
            return _keep(path, check)
        try:
            _download(url, part)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"could not fetch {url} ({error}); run the same command again, {by_hand}") from error
        try:
            check(part)
        except ValueError as error:
            part.unlink()
            raise ValueError(f"{url} did not give the published file ({error}); try once more, {by_hand}") from error
        part.replace(path)
    return path


def _keep(path: Path, check: Callable[[Path], None]) -> Path:
    try:
        check(path)
    except ValueError as error:
        raise ValueError(f"{error}; move it away and run the same command again") from error
    return path


def _download(url: str, part: Path) -> None:
    """Fill `part`, connecting again as long as each connection brings the file further."""
    best = -1
    while not _connect(url, part):
        if _size(part) <= best:
            raise ConnectionError(f"the connection broke after {_size(part)} bytes")
        best = _size(part)


def _connect(url: str, part: Path) -> bool:
    """Add to `part` what one connection gives; whether the file is whole then."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
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
        length = response.headers["Content-Length"]  # None where the server does not know it, as for GitHub's archives
        total = have + int(length) if length else None
        bar = meter(total, part.stem, "B", initial=have, unit_scale=True, unit_divisor=1024)
        with bar, part.open("ab" if resumed else "wb") as file:
            while block := _read(response):
                file.write(block)
                bar.update(len(block))
    return block is not None and total in (None, _size(part))


def _read(response: http.client.HTTPResponse) -> bytes | None:
    """The next block: empty at the end, None where the connection broke."""
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException):
        return None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
