"""What a report is made of: notebooks, published tables, runs and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pandas as pd

from sibrepro import paths
from sibrepro.facts import Record, published


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook and which of its copies is shown."""

    file: Path
    content: nbformat.NotebookNode
    origin: str  # for readers: where this copy comes from

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def title(self) -> str:
        """Its first heading, without a number of its own."""
        text = next((c.source for c in self.content.cells if c.cell_type == "markdown"), "")
        first = next((line for line in text.splitlines() if line.startswith("# ")), f"# {self.name}")
        return first.removeprefix("# ").lstrip("0123456789 ·").strip()

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]


@dataclasses.dataclass(frozen=True)
class Executed:
    """A notebook as executed here with the present cells, code and facts."""

    file: Path
    profile: str
    seconds: float


def notebooks(executed: Mapping[str, Executed]) -> list[Notebook]:
    """Each notebook as executed here (by name), else as it comes with the project."""
    return [_shown(file, executed.get(file.stem)) for file in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))]


def tables() -> dict[str, pd.DataFrame]:
    """Every published table by name."""
    return {file.stem: read_table(file) for file in sorted((paths.published() / "tables").glob("*.csv"))}


def read_table(file: Path) -> pd.DataFrame:
    """A table with K and the like as whole numbers; a damaged file is an error that says what to do."""
    try:
        table = pd.read_csv(file)
        if "ours" in table:
            table["ours"] = pd.to_numeric(table["ours"])
        return table.convert_dtypes()
    except (ValueError, UnicodeDecodeError) as error:  # pandas' parser errors are ValueErrors
        raise ValueError(
            f"{paths.relative(file)} cannot be read ({error}); take the committed one back with git checkout"
        ) from error


def records() -> dict[str, Record]:
    """All published runs by id, in the order in which they were finished."""
    found = [record for experiment in published.experiments() for record in published.find(experiment).values()]
    return {record.id: record for record in sorted(found, key=lambda r: (r.provenance.get("finished", ""), r.id))}


def figures() -> list[Path]:
    """The published pictures, in the order of their names."""
    return sorted(file for kind in ("png", "gif") for file in (paths.root() / "figures").glob(f"*.{kind}"))


def _shown(file: Path, executed: Executed | None) -> Notebook:
    if executed is None:
        return Notebook(file, nbformat.read(file, as_version=4), "as it comes with the project")
    origin = f"executed here, profile {executed.profile}, {executed.seconds:.0f} s"
    return Notebook(file, nbformat.read(executed.file, as_version=4), origin)
