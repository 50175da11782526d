"""Your own images: a folder (or zip) of class folders, with a file that lists the classes of each split.

    my-images/cat/1.jpg, my-images/cat/2.jpg, my-images/dog/1.jpg, ...      any sizes; png, jpg, bmp or webp
    my-images/splits.yaml      train: [cat, dog, ...]
                               val: [horse, ...]
                               test: [mouse, ...]
    data = datasets.load("folder", source="my-images", size=84)

A split is a list of class folders. No class may be in two splits, because few-shot learning tests on unseen classes.
The file is `splits.yaml` or `splits.json` at the top of the folder, or the argument `splits`. Pictures are scaled to
`size` x `size` pixels without cropping. Class folders that are in no split are left out, with a warning.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import reprlib
import warnings
from pathlib import Path, PurePosixPath

import yaml

from sibcore.datasets import limits
from sibcore.datasets.archive import PICTURES, Source
from sibcore.datasets.base import ImageSet, Index, few, find_source
from sibcore.datasets.pictures import decoded

NAME = "folder"
SPLITS = ("train", "val", "test")
SPLIT_FILES = ("splits.yaml", "splits.yml", "splits.json")
HELP = (
    "name your folder of class folders in the argument `source`, with a file splits.yaml in it that lists the classes "
    "of each split, such as `train: [cat, dog]`"
)


def load(source: Path | None = None, cache: Path | None = None, splits: Path | None = None, size: int = 84) -> ImageSet:
    """Load the images `<source>/<class>/<picture>`.

    Args:
        source: the folder or zip.
        cache: the cache folder, or None for the usual one.
        splits: a file like splits.yaml that is kept elsewhere.
        size: height and width of the images, in pixels.
    """
    if source is None:
        raise ValueError(f"{NAME}: {HELP}")
    files = Source(find_source(NAME, source, (), HELP))
    if splits is None:
        split_file = _find_split_file(files)
        top = split_file.parent
        classes = read_splits(files.read(str(split_file)), f"{files.path}: {split_file}")
    else:
        top = PurePosixPath()
        classes = read_splits(Path(splits).read_bytes(), str(splits))
    pictures = _pictures_by_class(files, top, classes)
    labels, names = [], []
    for label, of_class in enumerate(pictures.values()):
        labels += [label] * len(of_class)
        names += of_class
    index = Index(labels, classes=list(pictures), splits=classes)
    data = decoded(NAME, files, names, size, index, cache, size, classes)
    # the hash is part of the name, and with it of the ids of runs: runs on other pictures get other ids
    return dataclasses.replace(data, name=f"{NAME}-{data.sha256[:12]}")


class _TextLoader(yaml.BaseLoader):
    """Reads every value of a YAML file as text, so that a class may be called "no" or "007"."""

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):  # aliases of aliases turn 300 bytes into a list of billions
            raise yaml.YAMLError("aliases such as *name are not read, write the names out")
        return super().compose_node(parent, index)


def read_splits(content: bytes, where: str) -> dict[str, list[str]]:
    """Return the class names of each split, or raise a ValueError if this is not a valid split file.

    Args:
        content: the content of the file.
        where: names the file in errors. If it ends in ".json" the content is JSON, else YAML.
    """
    if len(content) > limits.SPLIT_BYTES:
        raise ValueError(f"{where} is too large for a split file: it has {len(content)} bytes; {HELP}")
    try:
        splits = json.loads(content) if where.endswith(".json") else yaml.load(content, Loader=_TextLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise ValueError(f"{where} is neither JSON nor YAML ({error}); {HELP}") from error
    if not isinstance(splits, dict) or not splits or set(splits) - set(SPLITS):
        found = ", ".join([*splits][:9]) if isinstance(splits, dict) else type(splits).__name__
        raise ValueError(f"{where} must have lists called {', '.join(SPLITS)}, but has {found or 'nothing'}; {HELP}")
    for split, classes in splits.items():
        if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
            raise ValueError(f"{where}: {split} must be a list of class names, but is {reprlib.repr(classes)}; {HELP}")
    splits_of = collections.defaultdict(list)  # of each class
    for split, classes in splits.items():
        for name in classes:
            splits_of[name].append(split)
    twice = [f"{name} in {' and '.join(found)}" for name, found in splits_of.items() if len(found) > 1]
    if twice:
        raise ValueError(f"{where} lists a class twice: {few(twice)}; a class belongs to one split")
    return splits


def _find_split_file(files: Source) -> PurePosixPath:
    """Return the name of the split file: at the top, or in the one folder that a zip holds."""
    found = [PurePosixPath(name) for name in files.names if PurePosixPath(name).name in SPLIT_FILES]
    if len(found) != 1:
        seen = f"{len(found)}: {few(list(map(str, found)))}" if found else "none"
        raise ValueError(f"{files.path}: expected one file splits.yaml or splits.json, found {seen}; {HELP}")
    return found[0]


def _pictures_by_class(files: Source, top: PurePosixPath, splits: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names of the pictures of each class, in the order of the splits."""
    found = collections.defaultdict(list)
    for name in files.pictures():
        found[PurePosixPath(name).parent].append(name)
    folders = {label: top / label for classes in splits.values() for label in classes}
    missing = [label for label, place in folders.items() if place not in found]
    if missing:
        problems = [f"class {label} has no folder {folders[label]} with pictures" for label in missing]
        raise ValueError(
            f"{files.path}: {few(problems)} ({' '.join(PICTURES)}); add what is missing, or take the class out of the "
            "split file"
        )
    left_out = sorted(map(str, found.keys() - set(folders.values())))
    if left_out:
        warnings.warn(f"{files.path}: left out folders that are in no split: {few(left_out)}", stacklevel=3)
    return {label: found[folder] for label, folder in folders.items()}
