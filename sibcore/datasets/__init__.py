"""Image sets by name: `load("cifar-fs")`; for your own images see `sibcore.datasets.folder`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from sibcore.datasets.base import ImageSet, MissingData

# each is a module with `load(source=None, cache=None, ...) -> ImageSet`, imported when asked for
MODULES = ("cifar-fs", "folder", "mini-imagenet", "pacs")


def load(name: str, source: Path | None = None, cache: Path | None = None, **options: object) -> ImageSet:
    """The image set `name`, from `source` (a file or folder), else from `SIB_DATA` or the cache folder.

    `options` are those of the set's own `load`, such as the size of the images of "pacs" and "folder".
    """
    data = module(name)
    try:
        return data.load(source=source, cache=cache, **options)
    except MissingData:
        raise
    except OSError as error:  # a folder that may not be entered, a disk that fails
        raise ValueError(f"{name}: {error}") from error


def module(name: str) -> ModuleType:
    """The module of the data set `name`."""
    if name not in MODULES:
        raise ValueError(f"there is no data set {name!r}: expected one of {', '.join(MODULES)}")
    return import_module(f"sibcore.datasets.{name.replace('-', '_')}")
