"""Image sets by name: `load("cifar-fs")`. For your own images see `sibcore.datasets.folder`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from sibcore.datasets.base import ImageSet, MissingData

# Each name is a module with `load(source=None, cache=None, ...) -> ImageSet`, which is imported only when it is asked
# for.
MODULES = ("cifar-fs", "folder", "mini-imagenet", "pacs")


def load(name: str, source: Path | None = None, cache: Path | None = None, **options: object) -> ImageSet:
    """Load an image set. Its pictures are decoded at the first call and read from the cache later.

    Args:
        name: one of `MODULES`.
        source: the archive or folder with the pictures; by default it is looked for in the folder of the environment
            variable `SIB_DATA`, then in the cache folder.
        cache: the cache folder; by default that of `SIB_CACHE`, else `~/.cache/sibcore`.
        options: options of the set's own `load`, such as the `size` of the images of "pacs" and "folder".

    Raises:
        MissingData: if there is no such file or folder.
        ValueError: if what is there is not the image set.
    """
    data = module(name)
    try:
        return data.load(source=source, cache=cache, **options)
    except MissingData:
        raise
    except OSError as error:  # for example a folder without permission, or a disk that fails
        raise ValueError(f"{name}: {error}") from error


def module(name: str) -> ModuleType:
    """Return the module of an image set, or raise a ValueError that lists the names there are."""
    if name not in MODULES:
        raise ValueError(f"there is no data set {name!r}: expected one of {', '.join(MODULES)}")
    try:
        return import_module(f"sibcore.datasets.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        message = f"image sets need the package {error.name}, which is not installed: pip install 'sibcore[images]'"
        raise ModuleNotFoundError(message, name=error.name) from error
