"""CIFAR-FS (Bertinetto et al., 2019): the 100 classes of CIFAR-100, 600 images each, split 64/16/20.

It is read from an archive or folder in the published layout, or from torchvision's CIFAR100. Both hold the same
pictures in different orders, and torchvision does not keep file names. Rows are therefore sorted by class name and then
by pixels, so that both give the same array and the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sibcore.datasets.archive import Source
from sibcore.datasets.base import ImageSet, Index, MissingData, check_counts, find_source
from sibcore.datasets.cache import Decoded, cached
from sibcore.datasets.folder import read_splits
from sibcore.datasets.pictures import decode

NAME = "cifar-fs"
SIZE = 32
IMAGES_PER_CLASS = 600
SPLITS = read_splits(Path(__file__).with_suffix(".yaml").read_bytes(), NAME)
CLASSES = tuple(sorted(name for names in SPLITS.values() for name in names))

FOUND_AS = ("cifar-fs.zip", "cifar-fs", "cifar100", "cifar-100-python")
HELP = (
    "set SIB_DATA to the folder that holds cifar-fs.zip, name the archive or folder in the argument `source`, or run "
    "`sib data get cifar-fs`"
)


def load(source: Path | None = None, cache: Path | None = None) -> ImageSet:
    """Load CIFAR-FS from a zip or folder `cifar100/data/<class>/<name>.png`, or from a folder of torchvision's.

    Args:
        source: the zip or folder; by default it is looked for in the folder of `SIB_DATA`, then in the cache folder.
        cache: the cache folder, or None for the usual one.
    """
    path = find_source(NAME, source, FOUND_AS, HELP)
    torchvisions = path.parent if path.name == "cifar-100-python" else path
    if (torchvisions / "cifar-100-python").is_dir():
        return from_torchvision(torchvisions, cache)
    files = Source(path)
    return cached(NAME, files.key(), SIZE, lambda: _from_files(files), cache)


def from_torchvision(folder: Path, cache: Path | None = None) -> ImageSet:
    """Load CIFAR-FS from the folder in which torchvision's CIFAR100 keeps its files."""
    from sibcore.datasets._torchvision import torchvision

    try:
        parts = [torchvision.datasets.CIFAR100(folder, train) for train in (True, False)]
    except RuntimeError as error:
        raise MissingData(f"{NAME}: no whole CIFAR-100 of torchvision in {folder}; {HELP}") from error
    images, labels = [], []
    for part in parts:
        images += list(part.data)
        labels += [part.classes[label] for label in part.targets]
    return cached(NAME, "torchvision", SIZE, lambda: _sorted(images, labels), cache)


def _from_files(files: Source) -> Decoded:
    """Decode the pictures. The name of the folder that a picture lies in is its class.

    Raise a ValueError unless there are 600 pictures of each of the 100 classes.
    """
    names = files.pictures()
    labels = [Path(name).parent.name for name in names]
    check_counts(NAME, files.path, labels, CLASSES, IMAGES_PER_CLASS, HELP)
    return _sorted(list(decode(files, names, SIZE)), labels)


def _sorted(images: Sequence[np.ndarray], labels: Sequence[str]) -> Decoded:
    """Sort images and labels by class name and then by pixels."""
    rows = sorted(zip(labels, images, strict=True), key=lambda row: (row[0], row[1].tobytes()))
    index = Index(labels=[CLASSES.index(label) for label, _ in rows], classes=CLASSES, splits=SPLITS)
    return [image for _, image in rows], index
