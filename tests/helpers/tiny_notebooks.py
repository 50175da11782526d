"""Tiny notebooks for the tests of sweeps: a parameters cell, and whatever a test needs to happen."""

from __future__ import annotations

import os
import time
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
PARAMETERS = 'a = 1\neta = 1e-3\nmode = "plain"'

# A line in `executed` for each time a point got that far.
COUNT = """
import os
with open({folder!r} + "/executed", "a") as file:
    file.write(f"{a} {os.getpid()}\\n")
"""

# A run record without importing torch, which takes longer than all the rest of such a notebook.
RECORD = """
from sibrepro.facts import manifest
manifest.note("run", f"tiny-{a:012x}")
"""

# The real thing.
COMPUTE = """
from sibrepro.facts import Experiment
def compute(params):
    with open({folder!r} + "/computed", "a") as file:
        file.write(f"{params['a']}\\n")
    return {"double": 2.0 * params["a"]}, {}
record = Experiment("tiny", dict, compute).run({"a": a})
"""


def write(folder: Path, *cells: str, name: str = "tiny", parameters: str = PARAMETERS) -> Path:
    """A notebook in `folder`; `{folder!r}` in a cell stands for that folder."""
    content = [new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    content += [new_code_cell(cell.replace("{folder!r}", repr(str(folder)))) for cell in cells]
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=content, metadata=KERNEL), path)
    return path


def executed(folder: Path) -> list[str]:
    """Which values of `a` were executed, in order."""
    file = folder / "executed"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.is_file() else []


def record_of(a: int) -> None:
    """The run record that `RECORD` names, made beforehand."""
    from sibrepro.facts import Experiment, local

    def compute(params: dict) -> tuple[dict, dict]:
        return {"double": 2.0 * params["a"], "curve": [1, 2]}, {}

    name = Experiment("tiny", dict, compute).run({"a": a}).id
    folder = local.folder_of(name).rename(local.folder_of(f"tiny-{a:012x}"))
    os.utime(folder / local.DONE, (2e9, 2e9))  # surely the last


def until(condition, seconds: float = 300.0):
    """Wait for `condition()` to hold; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value
