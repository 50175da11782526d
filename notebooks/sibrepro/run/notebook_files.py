"""Notebooks as files: executing them in place for a commit, and scrubbing what differs from machine to machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from sibcore.files import write_atomically

# Outputs and execution counts stay: they are what readers see and what nbval compares with.
SCRUB = ["--keep-output", "--keep-count", "--extra-keys"]
SCRUB += ["metadata.papermill metadata.widgets metadata.language_info.version cell.metadata.papermill"]


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
