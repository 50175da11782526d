"""The one module that knows where things are. Nothing here depends on the current working directory.

results/facts, checkpoints, features, tables; figures/    published: tracked, written by `./run_all.sh publish` alone
results/local/                                            what is computed and drawn here; `SIB_OUTPUT` moves it
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROFILES = ("quick", "cpu", "paper")  # the folders of notebooks/params


def root() -> Path:
    """The project's folder: `SIB_HOME` if set, else the checkout that holds this package, else a folder of the user's.

    The last case is a plain `pip install` without a checkout: results then go to `~/.sibcore`.
    """
    checkout = PACKAGE.parents[1]
    here = checkout if (checkout / "pyproject.toml").is_file() else Path.home() / ".sibcore"
    return _named("SIB_HOME") or here


def need_checkout() -> None:
    """An error where there are no notebooks: an installation has the code alone."""
    if not next(notebooks().glob("*.ipynb"), None):
        raise ValueError(
            f"there are no notebooks in {notebooks()}: this command works in a checkout of the project; "
            "run it from there, or set SIB_HOME to the checkout's folder"
        )


def notebooks() -> Path:
    return root() / "notebooks"


def published() -> Path:
    """What came with the project: facts, checkpoints, features and tables. Read-only but for `publish`."""
    return root() / "results"


def local() -> Path:
    """What is computed here: `SIB_OUTPUT` if set, else `results/local`."""
    return _named("SIB_OUTPUT") or root() / "results" / "local"


def figures() -> Path:
    """Where figures are drawn: `SIB_FIGURES` if set (`publish`, and points of a sweep), else below `local()`."""
    return _named("SIB_FIGURES") or local() / "figures"


def tables() -> Path:
    """Where tables are written: `SIB_TABLES` if set (`publish`), else below `local()`."""
    return _named("SIB_TABLES") or local() / "tables"


def relative(path: Path) -> str:
    """`path` as seen from `local()`, or from `root()`: messages and records must not name one machine's folders."""
    path = Path(path).resolve()
    for base in (local(), root()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


def _named(variable: str) -> Path | None:
    folder = os.environ.get(variable)
    return Path(folder).expanduser().resolve() if folder else None
