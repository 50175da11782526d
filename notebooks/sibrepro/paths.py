"""Where files are. No other module knows a folder's place, and none depends on the current working directory.

results/facts, checkpoints, features, tables; figures/    published; only `./run_all.sh publish` writes there
results/local/                                            computed on this machine; `SIB_OUTPUT` moves it
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROFILES = ("quick", "cpu", "paper")  # the folders of notebooks/params


def root() -> Path:
    """Return the project's folder: `SIB_HOME` if that is set, otherwise the checkout that holds this package.

    If the package was installed without a checkout, it is `~/.sibcore`.
    """
    if named := _named("SIB_HOME"):
        return named
    checkout = PACKAGE.parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.home() / ".sibcore"


def need_checkout() -> None:
    """Raise a ValueError if there are no notebooks, because the package was installed without a checkout."""
    if not next(notebooks().glob("*.ipynb"), None):
        raise ValueError(
            f"there are no notebooks in {notebooks()}: this command works in a checkout of the project; "
            "run it from there, or set SIB_HOME to the checkout's folder"
        )


def notebooks() -> Path:
    """Return the folder of the notebooks."""
    return root() / "notebooks"


def published() -> Path:
    """Return the folder of what came with the project: facts, checkpoints, features and tables."""
    return root() / "results"


def local() -> Path:
    """Return the folder of what this machine computes: `SIB_OUTPUT` if that is set, otherwise `results/local`."""
    return _named("SIB_OUTPUT") or root() / "results" / "local"


def figures() -> Path:
    """Return where figures are written: `SIB_FIGURES` (set by `publish` and sweeps), otherwise below `local()`."""
    return _named("SIB_FIGURES") or local() / "figures"


def tables() -> Path:
    """Return where tables are written: `SIB_TABLES` (set by `publish`), otherwise below `local()`."""
    return _named("SIB_TABLES") or local() / "tables"


def relative(path: Path) -> str:
    """Return `path` relative to `local()` or `root()`, because records must not name the folders of one machine."""
    path = Path(path).resolve()
    for base in (local(), root()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


def _named(variable: str) -> Path | None:
    """Return the folder that an environment variable names, or None if it is not set."""
    folder = os.environ.get(variable)
    return Path(folder).expanduser().resolve() if folder else None
