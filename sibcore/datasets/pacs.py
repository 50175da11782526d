"""PACS (Li et al., 2017): 7 classes in 4 domains (art painting, cartoon, photo, sketch), 9,991 images of 227x227."""

from __future__ import annotations

import collections
import warnings
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from sibcore.datasets.archive import Source
from sibcore.datasets.base import ImageSet, Index, few, find_source
from sibcore.datasets.pictures import decode_one, decoded

NAME = "pacs"
SIZE = 224
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
COUNTS = {  # published number of images, in the order of CLASSES
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
Domain = Literal["art_painting", "cartoon", "photo", "sketch"]
DOMAINS: tuple[str, ...] = get_args(Domain)  # in the order of `COUNTS`

# The original site is gone. A public repository keeps the files, here pinned to one commit. GitHub may pack the archive
# of a commit into other bytes one day, so LISTING is the hash of the listing of its pictures.
COMMIT = "d586a6cf3db84896fb6cc465c7bf51bdaf6d65d8"
URL = f"https://github.com/MachineLearning2020/Homework3-PACS/archive/{COMMIT}.zip"
LISTING = "6a3e8284d17f09285dfb7e86f9d9cbcf629a0bdf90413e226957a3bba5f89a9a"

FOUND_AS = ("pacs.zip", "PACS", "pacs")
HELP = (
    "set SIB_DATA to the folder that holds pacs.zip, name the archive or folder in the argument `source`, or run "
    "`sib data get pacs`"
)


def load(source: Path | None = None, cache: Path | None = None, size: int = SIZE) -> ImageSet:
    """Load PACS from a zip or folder `<domain>/<class>/<picture>`, at any depth, with images of `size` x `size` pixels.

    All classes are in the one split "all"; `domain_rows("photo")` are the rows of a domain. Warn if the numbers of
    pictures are not the published ones.

    Args:
        source: the zip or folder; by default it is looked for in the folder of `SIB_DATA`, then in the cache folder.
        cache: the cache folder, or None for the usual one.
        size: height and width of the images, in pixels.
    """
    files = Source(find_source(NAME, source, FOUND_AS, HELP))
    pictures = find_pictures(files)
    found = collections.Counter(place[:2] for place in pictures)
    differ = []
    for domain in DOMAINS:
        for label, published in zip(CLASSES, COUNTS[domain], strict=True):
            count = found[domain, label]
            if count != published:
                differ.append(f"{domain}/{label} has {count} images, published are {published}")
    if differ:
        warnings.warn(f"{files.path} is not the published PACS: {few(differ)}", stacklevel=2)
    labels = [CLASSES.index(label) for _, label, _ in pictures]
    domains = [DOMAINS.index(domain) for domain, _, _ in pictures]
    index = Index(labels, CLASSES, {"all": CLASSES}, domains, DOMAINS)
    return decoded(NAME, files, list(pictures.values()), size, index, cache, size)


def samples(source: Path | None = None, size: int = 96) -> dict[tuple[str, str], np.ndarray]:
    """Return one image, uint8 `[size, size, 3]`, of each (domain, class), without decoding the others."""
    files = Source(find_source(NAME, source, FOUND_AS, HELP))
    first = {}
    for (domain, label, _), name in find_pictures(files).items():
        first.setdefault((domain, label), name)
    return {place: decode_one(files.read(name), f"{files.path}: {name}", size) for place, name in first.items()}


def find_pictures(files: Source) -> dict[tuple[str, str, str], str]:
    """Return the name in `files` of each (domain, class, file name), sorted.

    Raise a ValueError if a folder of a domain or class is missing, or if there are others.
    """
    tops = set()  # the folders that hold the folders of the domains
    for name in files.pictures():
        folders = name.split("/")[:-1]
        tops |= {tuple(folders[: folders.index(domain)]) for domain in DOMAINS if domain in folders}
    if len(tops) != 1:
        many = "no folder with" if not tops else f"{len(tops)} folders with"
        raise ValueError(f"{files.path} is not PACS: there is {many} the domains {', '.join(DOMAINS)}; {HELP}")
    top = "/".join(tops.pop())
    pictures = {tuple(name.removeprefix(f"{top}/").split("/")): name for name in files.pictures(top)}

    places = {place[:-1] for place in pictures}
    expected = {(domain, label) for domain in DOMAINS for label in CLASSES}
    wrong = [f"no pictures in {'/'.join(place)}" for place in sorted(expected - places)]
    wrong += [f"unexpected pictures in {'/'.join(place) or 'the top folder'}" for place in sorted(places - expected)]
    if wrong:
        raise ValueError(
            f"{files.path} is not PACS: {few(wrong)}; expected a folder for each of the domains {', '.join(DOMAINS)}, "
            f"in it one for each of the classes {', '.join(CLASSES)}, and no others; {HELP}"
        )
    return pictures


def check_listing(path: Path) -> None:
    """Raise a ValueError unless every picture in the archive is, bit by bit, the one that was published."""
    files = Source(path)
    places = {f"PACS/{'/'.join(place)}": name for place, name in find_pictures(files).items()}
    files.check_listing(places, LISTING)
