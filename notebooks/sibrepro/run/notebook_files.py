"""Notebooks as files: their parameters, executing them in place for a commit, scrubbing what machines leave in them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from sibcore.files import write_atomically
from sibrepro import params

# Outputs and execution counts stay: they are what readers see and what nbval compares with.
SCRUB = ["--keep-output", "--keep-count", "--extra-keys"]
SCRUB += ["metadata.papermill metadata.widgets metadata.language_info.version cell.metadata.papermill"]


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook without its outputs, as it was when it was read: later edits do not reach who holds it."""

    name: str
    content: nbformat.NotebookNode
    source: str  # of its cells
    defaults: dict[str, Any]  # what its parameters cell says

    @classmethod
    def read(cls, path: Path) -> Notebook:
        if not path.is_file():
            raise ValueError(f"there is no notebook {path}")
        try:
            content = nbformat.read(path, as_version=4)
            for cell in content.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            source = "\n".join(cell.source for cell in content.cells)
            defaults = params.in_cells(content.cells)
        except Exception as error:  # whatever nbformat and a parameters cell that is no Python lead to
            raise ValueError(f"{path} is not a readable notebook ({type(error).__name__}: {error})") from error
        if not defaults:
            raise ValueError(f"{path.name} has no parameters: tag the cell that sets them with `parameters`")
        return cls(path.stem, content, source, defaults)

    def conform(self, given: dict[str, Any]) -> dict[str, Any]:
        """`given` with floats where the notebook wants them, or a ValueError that lists the notebook's parameters."""
        checked = params.check(params.class_for(self.source, self.defaults), self.defaults | given)
        return {n: float(v) if type(getattr(checked, n)) is float else v for n, v in given.items()}


def refresh(notebook: Path) -> None:
    """Execute a notebook with its own parameters cell and write it back with its outputs, scrubbed."""
    print(f"executing {notebook.name}", flush=True)
    content = nbformat.read(notebook, as_version=4)
    resources = {"metadata": {"path": str(notebook.parent)}}
    NotebookClient(content, timeout=None, kernel_name="python3", resources=resources).execute()
    for cell in content.cells:
        if cell.cell_type == "code":  # progress lines are for the one who waits
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    write_atomically(notebook, nbformat.writes(content).encode())
    scrub([notebook])


def scrub(notebooks: Iterable[Path]) -> None:
    """Strip machine-dependent metadata, in place."""
    subprocess.run([sys.executable, "-m", "nbstripout", *SCRUB, *map(str, notebooks)], check=True)
