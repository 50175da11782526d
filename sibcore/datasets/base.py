"""The shape that every image set has, and the one decoded copy of it on disk.

Pictures are decoded once into `<cache>/datasets/<name>-<key>/images.npy`, a memory-mapped uint8 array, with everything
else in `index.json` beside it. The key names the source (file names, sizes and checksums), so a changed source gives a
new folder. A folder appears in one rename when it is whole, and its content is checked against its hash when opened.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from filelock import FileLock
from PIL import Image, ImageOps

from sibcore.progress import steps

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with labels, and the classes of each split.

    images: uint8 [N, H, W, 3], read-only, usually memory-mapped
    labels: int64 [N], indices into `classes`
    splits: class names by split; domain-adaptation sets also have int64 `domains` [N], indices into `domain_names`
    sha256: hash of the content above, whatever file it came from
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    splits: Mapping[str, tuple[str, ...]]
    sha256: str
    domains: np.ndarray | None = None
    domain_names: tuple[str, ...] = ()

    def rows(self, split: str) -> np.ndarray:
        """The rows of `images` that belong to a split, int64 [n], ascending."""
        return np.flatnonzero(np.isin(self.labels, self._class_ids(split)))

    def split_labels(self, split: str) -> np.ndarray:
        """For each of `rows(split)`: the position of its class in `splits[split]`, int64 [n]."""
        position = np.full(len(self.classes), -1)
        ids = self._class_ids(split)
        position[ids] = np.arange(len(ids))
        return position[self.labels[self.rows(split)]]

    def domain_rows(self, domain: str) -> np.ndarray:
        """The rows of `images` that belong to a domain, int64 [n], ascending."""
        if domain not in self.domain_names:
            known = ", ".join(self.domain_names) or "it has none"
            raise ValueError(f"{self.name} has no domain {domain!r}: expected one of {known}")
        return np.flatnonzero(self.domains == self.domain_names.index(domain))

    def _class_ids(self, split: str) -> list[int]:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}: expected one of {', '.join(self.splits)}")
        return [self.classes.index(name) for name in self.splits[split]]


@dataclasses.dataclass(frozen=True)
class Index:
    """All of an image set apart from its pixels."""

    labels: Sequence[int]
    classes: Sequence[str]
    splits: Mapping[str, Sequence[str]]
    domains: Sequence[int] | None = None
    domain_names: Sequence[str] = ()


class Files:
    """The files below a folder or inside a zip: one way to list, read and fingerprint both."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self._zip = zipfile.ZipFile(self.path) if self.path.is_file() else None
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is not a whole zip archive ({error}); fetch it again") from error
        if self._zip:
            self._stamps = {i.filename: (i.file_size, i.CRC) for i in self._zip.infolist() if not i.is_dir()}
        else:  # os.walk, since Path.rglob passes over linked class folders
            found = [Path(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names]
            stats = {file.relative_to(path).as_posix(): file.stat() for file in found if file.is_file()}
            self._stamps = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
        self.names = sorted(self._stamps)

    def pictures(self, below: str = "") -> list[str]:
        """The names of all pictures below a folder, apart from hidden files and those that macOS puts into a zip."""
        prefix = f"{below}/" if below else ""
        names = [name for name in self.names if name.startswith(prefix) and name.lower().endswith(PICTURES)]
        return [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]

    def __contains__(self, name: str) -> bool:
        return name in self._stamps

    def has_folder(self, name: str) -> bool:
        """Whether there is such a folder, be it empty."""
        if self._zip:
            return any(entry.startswith(f"{name}/") for entry in self._zip.namelist())
        return (self.path / name).is_dir()

    def read(self, name: str) -> bytes:
        try:
            return self._zip.read(name) if self._zip else (self.path / name).read_bytes()
        except (zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{self.path}: {name} is damaged ({error}); fetch the archive again") from error

    def text(self, name: str) -> str:
        return self.read(name).decode("utf-8")

    def key(self, *details: object) -> str:
        """Hash of names, sizes and checksums (or times, in a folder), and of the `details` of the decoding."""
        listing = [(name, *self._stamps[name]) for name in self.names]
        return hashlib.sha256(repr((listing, details)).encode()).hexdigest()[:12]


def data_folder() -> Path | None:
    """The user's folder of archives: `SIB_DATA`, if set."""
    folder = os.environ.get("SIB_DATA")
    return Path(folder).expanduser().resolve() if folder else None


def cache_folder(folder: Path | None = None) -> Path:
    """`folder`, else `SIB_CACHE`, else `~/.cache/sibcore`."""
    return Path(folder or os.environ.get("SIB_CACHE") or "~/.cache/sibcore").expanduser().resolve()


def find_source(name: str, source: Path | None, file_names: Sequence[str], help: str) -> Path:
    """The archive or folder of a data set: `source`, or one of `file_names` in `SIB_DATA` or the cache folder."""
    if source is not None:
        source = Path(source).expanduser().resolve()
        if not source.exists():
            raise FileNotFoundError(f"{name}: {source} does not exist; {help}")
        return source
    places = [place for place in (data_folder(), cache_folder()) if place]
    found = [place / file_name for place in places for file_name in file_names if (place / file_name).exists()]
    if not found:
        looked = " or ".join(map(str, places))
        raise FileNotFoundError(f"{name}: found none of {', '.join(file_names)} in {looked}; {help}")
    return found[0]


def check_counts(name: str, where: Path, labels: Sequence[str], classes: Sequence[str], count: int, help: str) -> None:
    """An error that names the classes without exactly `count` images, and those that are none of `classes`."""
    found = collections.Counter(labels)
    wrong = [f"{label} has {found[label]}" for label in classes if found[label] != count]
    wrong += [f"{label} is not one of its classes" for label in sorted(found) if label not in classes]
    if wrong:
        raise ValueError(f"{where} is not {name}: expected {count} images of each class, but {few(wrong)}; {help}")


def few(problems: Sequence[str], most: int = 5) -> str:
    """The first problems as one line, and how many more there are."""
    return "; ".join(problems[:most]) + (f"; and {len(problems) - most} more" if len(problems) > most else "")


def decode(files: Files, names: Sequence[str], path: Path, size: int) -> np.ndarray:
    """Decode pictures into a new memory-mapped uint8 array [N, size, size, 3] at `path`, resizing where needed."""
    images = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(len(names), size, size, 3))

    def put(row: int) -> None:
        images[row] = decode_one(files.read(names[row]), f"{files.path}: {names[row]}", size)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # threads suffice: Pillow and zlib let go of the GIL
        done = pool.map(put, range(len(names)))
        for _ in steps(len(names), f"decoding {files.path.name}", "image"):
            next(done)
    return images


def decode_one(content: bytes, where: str, size: int) -> np.ndarray:
    """One picture as uint8 [size, size, 3]; `where` names it in the error."""
    try:
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")  # upright, as viewers show it
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError for a broken PNG chunk
        raise ValueError(f"{where} is not a readable picture ({error}); replace the file and try again") from error
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(picture)


def cached(name: str, key: str, build: Callable[[Path], Index], cache: Path | None = None) -> ImageSet:
    """The image set in the cache folder, made by `build` if it is not there or damaged.

    `build(path)` writes the images as a .npy file at `path` and returns the rest.
    """
    folder = cache_folder(cache) / "datasets" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        found = _open(name, folder)
        if found is None:
            _build(folder, build)
            found = _open(name, folder)
    if found is None:
        raise OSError(f"{folder} was just written but does not match its hash: check the disk, then try again")
    return found


def _build(folder: Path, build: Callable[[Path], Index]) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        index = dataclasses.asdict(build(scratch / "images.npy"))
        images = np.load(scratch / "images.npy", mmap_mode="r", allow_pickle=False)
        written = {"index": index, "sha256": content_hash(images, index)}
        (scratch / "index.json").write_text(json.dumps(written), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open(name: str, folder: Path) -> ImageSet | None:
    """The image set in `folder`, or None where it is missing, unreadable or does not match its hash."""
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        written = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        index, sha256 = written["index"], written["sha256"]
        found = image_set(name, images, Index(**index))
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None
    return found if found.sha256 == sha256 else None


def image_set(name: str, images: np.ndarray, index: Index) -> ImageSet:
    """Put pixels and index together; also for sets that are made in memory."""
    if len(index.labels) != len(images):
        raise ValueError(f"{name}: {len(images)} images but {len(index.labels)} labels")
    if images.flags.writeable:
        images.flags.writeable = False
    return ImageSet(
        name=name,
        images=images,
        labels=np.asarray(index.labels, dtype=np.int64),
        classes=tuple(index.classes),
        splits={split: tuple(classes) for split, classes in index.splits.items()},
        sha256=content_hash(images, dataclasses.asdict(index)),
        domains=None if index.domains is None else np.asarray(index.domains, dtype=np.int64),
        domain_names=tuple(index.domain_names),
    )


def content_hash(images: np.ndarray, index: Mapping) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(images))
    digest.update(json.dumps([images.shape, index], sort_keys=True).encode())
    return digest.hexdigest()
