"""The shape that every image set has, and the places where its files are looked for."""

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


class MissingData(FileNotFoundError, ValueError):
    """The files of a data set are not there: an error of the caller like all others here, and a missing file."""


def cache_folder(folder: Path | None = None) -> Path:
    """`folder`, else `SIB_CACHE`, else `~/.cache/sibcore`."""
    return Path(folder or os.environ.get("SIB_CACHE") or "~/.cache/sibcore").expanduser().resolve()


def find_source(name: str, source: Path | None, file_names: Sequence[str], help: str) -> Path:
    """The archive or folder of a data set: `source`, or one of `file_names` in `SIB_DATA` or the cache folder."""
    if source is not None:
        source = Path(source).expanduser().absolute()
        if not source.exists():
            raise MissingData(f"{name}: {source} does not exist; {help}")
        return source
    data = os.environ.get("SIB_DATA")
    places = [*([Path(data).expanduser().resolve()] if data else []), cache_folder()]
    found = [place / file_name for place in places for file_name in file_names if (place / file_name).exists()]
    if not found:
        looked = " or ".join(map(str, places))
        raise MissingData(f"{name}: found none of {', '.join(file_names)} in {looked}; {help}")
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


def image_set(name: str, images: np.ndarray, index: Index) -> ImageSet:
    """Put pixels and index together; also for sets that are made in memory."""
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
