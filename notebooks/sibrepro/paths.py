"""The one module that knows where things are. Nothing here depends on the current working directory."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROFILES = ("quick", "cpu", "paper")  # the folders of notebooks/params


def root() -> Path:
    """The project's folder: `SIB_HOME` if set, else the checkout that holds this package, else a folder of the user's.

    The last case is a plain `pip install` without a checkout: results then go to `~/.sibcore`.
    """
    home = os.environ.get("SIB_HOME")
    if home:
        return Path(home).expanduser().resolve()
    checkout = PACKAGE.parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.home() / ".sibcore"


def output() -> Path:
    """Where results and figures are written: `SIB_OUTPUT` if set (checks use a scratch folder), else `root()`."""
    folder = os.environ.get("SIB_OUTPUT")
    return Path(folder).expanduser().resolve() if folder else root()


def notebooks() -> Path:
    return root() / "notebooks"


def results() -> Path:
    return output() / "results"


def figures() -> Path:
    """`SIB_FIGURES` if set (the points of a sweep draw apart from each other), else `figures` under `output()`."""
    folder = os.environ.get("SIB_FIGURES")
    return Path(folder).expanduser().resolve() if folder else output() / "figures"


def relative(path: Path) -> str:
    """`path` as seen from `output()`, for records and messages that must not name one machine's folders."""
    path = Path(path).resolve()
    return path.relative_to(output()).as_posix() if path.is_relative_to(output()) else path.as_posix()
