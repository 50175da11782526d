"""The form that every image set has, and the places where its files are looked for."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with labels, and the classes of each split.

    Args:
        name: name of the set, such as "cifar-fs".
        images: uint8 `[N, H, W, 3]`, read-only and usually memory-mapped.
        labels: int64 `[N]`, positions in `classes`.
        classes: names of all classes.
        splits: names of the classes of each split.
        sha256: hash of all of the above but the name. It does not depend on the files that the images came from.
        domains: for domain adaptation, int64 `[N]`, positions in `domain_names`.
        domain_names: names of the domains.
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
        """Return the rows of `images` that belong to a split, int64 `[n]`, in ascending order."""
        return np.flatnonzero(np.isin(self.labels, self._class_ids(split)))

    def split_labels(self, split: str) -> np.ndarray:
        """Return, for each of `rows(split)`, the position of its class in `splits[split]`, int64 `[n]`."""
        ids = self._class_ids(split)
        position = np.full(len(self.classes), -1)
        position[ids] = np.arange(len(ids))
        return position[self.labels[self.rows(split)]]

    def domain_rows(self, domain: str) -> np.ndarray:
        """Return the rows of `images` that belong to a domain, int64 `[n]`, in ascending order."""
        if domain not in self.domain_names:
            known = ", ".join(self.domain_names) or "it has none"
            raise ValueError(f"{self.name} has no domain {domain!r}: expected one of {known}")
        return np.flatnonzero(self.domains == self.domain_names.index(domain))

    def _class_ids(self, split: str) -> list[int]:
        """Return the positions in `classes` of a split's classes."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}: expected one of {', '.join(self.splits)}")
        return [self.classes.index(name) for name in self.splits[split]]


@dataclasses.dataclass(frozen=True)
class Index:
    """All of an image set except its name and pixels, in plain values that can be kept as JSON."""

    labels: Sequence[int]
    classes: Sequence[str]
    splits: Mapping[str, Sequence[str]]
    domains: Sequence[int] | None = None
    domain_names: Sequence[str] = ()


class MissingData(FileNotFoundError, ValueError):
    """The files of an image set are not there. Like every mistake of the caller it is also a ValueError."""


def cache_folder(folder: Path | None = None) -> Path:
    """Return `folder`, else that of the environment variable `SIB_CACHE`, else `~/.cache/sibcore`."""
    return Path(folder or os.environ.get("SIB_CACHE") or "~/.cache/sibcore").expanduser().resolve()


def find_source(name: str, source: Path | None, file_names: Sequence[str], help: str) -> Path:
    """Return the archive or folder with the pictures of an image set, or raise `MissingData`.

    Args:
        name: name of the set, for the error message.
        source: the path that the user gave, if any.
        file_names: names to look for in the folder of `SIB_DATA` and in the cache folder, if no path was given.
        help: the end of the error message, which says how to get the files.
    """
    if source is not None:
        source = Path(source).expanduser().absolute()
        if not source.exists():
            raise MissingData(f"{name}: {source} does not exist; {help}")
        return source
    folders = [cache_folder()]
    if os.environ.get("SIB_DATA"):
        folders.insert(0, Path(os.environ["SIB_DATA"]).expanduser().resolve())
    for folder in folders:
        for file_name in file_names:
            if (folder / file_name).exists():
                return folder / file_name
    looked_in = " or ".join(map(str, folders))
    raise MissingData(f"{name}: found none of {', '.join(file_names)} in {looked_in}; {help}")


def check_counts(name: str, where: Path, labels: Sequence[str], classes: Sequence[str], count: int, help: str) -> None:
    """Raise a ValueError unless each class has exactly `count` images.

    Args:
        name: name of the image set.
        where: the archive or folder, for the error message.
        labels: the class of each picture that was found.
        classes: the classes that there should be; a picture of another class is an error, too.
        count: images of each class.
        help: the end of the error message, which says how to get the right files.
    """
    found = collections.Counter(labels)
    wrong = [f"{label} has {found[label]}" for label in classes if found[label] != count]
    wrong += [f"{label} is not one of its classes" for label in sorted(found) if label not in classes]
    if wrong:
        raise ValueError(f"{where} is not {name}: expected {count} images of each class, but {few(wrong)}; {help}")


def few(problems: Sequence[str]) -> str:
    """Return the first five problems in one line, and the number of the others."""
    more = [f"and {len(problems) - 5} more"] if len(problems) > 5 else []
    return "; ".join([*problems[:5], *more])


def image_set(name: str, images: np.ndarray, index: Index) -> ImageSet:
    """Make an image set of uint8 pixels `[N, H, W, 3]` and their index. The pixels become read-only."""
    if len(index.labels) != len(images):
        raise ValueError(f"{name}: {len(images)} images but {len(index.labels)} labels")
    images.flags.writeable = False
    digest = hashlib.sha256(np.ascontiguousarray(images))
    digest.update(json.dumps([images.shape, dataclasses.asdict(index)], sort_keys=True).encode())
    return ImageSet(
        name=name,
        images=images,
        labels=np.asarray(index.labels, dtype=np.int64),
        classes=tuple(index.classes),
        splits={split: tuple(classes) for split, classes in index.splits.items()},
        sha256=digest.hexdigest(),
        domains=None if index.domains is None else np.asarray(index.domains, dtype=np.int64),
        domain_names=tuple(index.domain_names),
    )
