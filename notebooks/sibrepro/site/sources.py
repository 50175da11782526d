"""What a report is made of: executed notebooks, tables, run records and figures, as they are found."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

import nbformat
import pandas as pd

from sibrepro import paths
from sibrepro import tables as living
from sibrepro.facts import runs
from sibrepro.facts.runs import Record

COMMON = ["paper", "ours", "run"]
COLUMNS = {
    "few_shot": [*living.FEW_SHOT, *COMMON, "verdict", "paper_ci95", "ours_ci95", "seeds", "profile"],
    "synthetic_gradients": [*living.SYNTHETIC_GRADIENTS, *COMMON, "verdict", "steps"],
    "query_size": [*living.QUERY_SIZE, *COMMON, "verdict", "ours_ci95"],
    "pacs": ["target", "method", "K", "backbone", "features", *COMMON, "ours_ci95"],
}


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


def notebooks() -> list[Notebook]:
    """Each notebook as last executed here with success, in whichever profile; else as it is committed."""
    return [_shown(file) for file in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))]


def tables() -> dict[str, pd.DataFrame]:
    """Every `results/tables/*.csv` by name; our own stand before those that came with the project."""
    places = (paths.root() / "results", paths.results())
    files = {file.stem: file for place in places for file in sorted((place / "tables").glob("*.csv"))}
    return {name: read_table(file) for name, file in sorted(files.items())}


def read_table(file: Path) -> pd.DataFrame:
    """A table with K and the like as whole numbers; a damaged file is an error that says what to do."""
    try:
        table = pd.read_csv(file)
        lacking = [column for column in COLUMNS.get(file.stem, []) if column not in table]
        if lacking:
            raise ValueError(f"it lacks the columns {', '.join(lacking)}")
        if "verdict" in table and table["verdict"].isna().any():
            raise ValueError("a row has no verdict")
        if "ours" in table:
            table["ours"] = pd.to_numeric(table["ours"])
        return table.convert_dtypes()
    except (ValueError, UnicodeDecodeError) as error:  # pandas' parser errors are ValueErrors
        raise ValueError(
            f"{paths.relative(file)} cannot be read ({error}); delete it and run its notebook again, "
            "or take the committed one back with git checkout"
        ) from error


def records() -> dict[str, Record]:
    """All finished runs by id, in the order in which they were finished."""
    places = (paths.root() / "results", paths.results())
    folders = {folder.name for place in places for folder in (place / "runs").glob("*-*/")}
    experiments = sorted({name.rpartition("-")[0] for name in folders})
    found = [record for experiment in experiments for record in runs.published(experiment)]
    return {record.id: record for record in sorted(found, key=lambda r: (r.provenance.get("finished", ""), r.id))}


def figures() -> list[Path]:
    """Pictures to show, in the order of their names: what was drawn here, else what came with the project."""
    folders = (paths.root() / "figures", paths.figures())
    files = {file.name: file for folder in folders for kind in ("png", "gif") for file in folder.glob(f"*.{kind}")}
    return [files[name] for name in sorted(files)]


def _shown(file: Path) -> Notebook:
    executed = sorted((paths.results() / "executed").glob(f"*/{file.name}"), key=lambda path: path.stat().st_mtime)
    done = [path for path in executed if path.with_suffix(".json").is_file()]  # written after success only
    if done:
        seconds = json.loads(done[-1].with_suffix(".json").read_text(encoding="utf-8"))["seconds"]
        when = datetime.datetime.fromtimestamp(done[-1].stat().st_mtime, datetime.timezone.utc)
        origin = f"executed here, profile {done[-1].parent.name}, {when:%d %B %Y}, {seconds:.0f} s"
        shown = done[-1]
    else:
        shown, origin = file, "as it comes with the project"
    if executed and executed[-1] != shown:
        origin += f"; a later run, profile {executed[-1].parent.name}, failed"
    return Notebook(file, nbformat.read(shown, as_version=4), origin)
