"""Tiny notebooks for the tests of sweeps: a cell of parameters, and the cells that a test asks for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
PARAMETERS = 'a = 1\neta = 1e-3\nmode = "plain"'

# Writes a line to the file `executed` each time a point gets to this cell.
COUNT = """
import os
with open({folder!r} + "/executed", "a") as file:
    file.write(f"{a} {os.getpid()}\\n")
"""

# Notes a run that `record_of` made. It does not import torch, which would take longer than the rest of the notebook.
RECORD = """
from sibrepro.facts import manifest
manifest.note("run", f"tiny-{a:012x}")
"""

# Computes a run, as notebooks do.
COMPUTE = """
from sibrepro.facts import Experiment
def compute(params):
    with open({folder!r} + "/computed", "a") as file:
        file.write(f"{params['a']}\\n")
    return {"double": 2.0 * params["a"]}, {}
record = Experiment("tiny", dict, compute).run({"a": a})
"""


def write(folder: Path, *cells: str, name: str = "tiny", parameters: str = PARAMETERS) -> Path:
    """Write a notebook with these cells after its parameters, and return its path.

    Args:
        folder: where to write it; `{folder!r}` in a cell stands for it.
        cells: sources of the cells.
        name: name of the notebook.
        parameters: source of the cell of parameters.
    """
    content = [new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    content += [new_code_cell(cell.replace("{folder!r}", repr(str(folder)))) for cell in cells]
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=content, metadata=KERNEL), path)
    return path


def executed(folder: Path) -> list[str]:
    """Return the values of `a` that were executed with `COUNT`, in order."""
    file = folder / "executed"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.is_file() else []


def record_of(a: int) -> None:
    """Compute the run that `RECORD` notes for this value of `a`, and keep it under the name that the cell uses."""
    from sibrepro.facts import Experiment, local

    def compute(params: dict) -> tuple[dict, dict]:
        return {"double": 2.0 * params["a"], "curve": [1, 2]}, {}

    name = Experiment("tiny", dict, compute).run({"a": a}).id
    folder = local.folder_of(name).rename(local.folder_of(f"tiny-{a:012x}"))
    os.utime(folder / local.DONE, (2e9, 2e9))  # later than all other runs


def until(condition, seconds: float = 300.0):
    """Wait until `condition()` holds and return its value; raise AssertionError if it takes more seconds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"the condition did not hold within {seconds:.0f} s"
        time.sleep(0.05)
    return value
