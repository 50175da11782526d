"""Read a notebook and its parameters, execute it with papermill, and execute it in place for a commit."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError
from traitlets import Dict
from traitlets.config import Config

from sibcore import fingerprint
from sibcore.files import write_atomically
from sibrepro import params
from sibrepro.facts import local, manifest
from sibrepro.study import studies

# The options of nbstripout in the commit hook. Outputs and execution counts stay, because readers see them and nbval
# compares with them.
SCRUB = ["--keep-output", "--keep-count", "--extra-keys"]
SCRUB += ["metadata.papermill metadata.widgets metadata.language_info.version cell.metadata.papermill"]


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook without its outputs, as it was when it was read. A sweep executes this copy, whatever is edited later.

    Attributes:
        name: its file's name without the ending.
        content: its cells and metadata.
        source: the source of all its cells.
        defaults: the values that its parameters cell assigns.
    """

    name: str
    content: nbformat.NotebookNode
    source: str
    defaults: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Notebook:
        """Read a notebook, or raise a ValueError if it is not readable or has no parameters."""
        if not path.is_file():
            raise ValueError(f"there is no notebook {path}")
        try:
            content = nbformat.read(path, as_version=4)
            for cell in content.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            source = "\n".join(cell.source for cell in content.cells)
            defaults = params.in_cells(content.cells)
        except Exception as error:  # nbformat raises many kinds, and the parameters cell may not be Python
            raise ValueError(f"{path} is not a readable notebook ({type(error).__name__}: {error})") from error
        if not defaults:
            raise ValueError(f"{path.name} has no parameters: tag the cell that sets them with `parameters`")
        return cls(path.stem, content, source, defaults)

    @property
    def code(self) -> str:
        """Return the fingerprint of the code that the notebook can reach."""
        return fingerprint.digest(code_of(self.name, self.content.cells))

    def conform(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with whole numbers converted to floats where the notebook's parameter is a float.

        Raises:
            ParameterError: if the notebook has no such parameter, or does not allow its value.
        """
        checked = params.check(params.class_for(self.source, self.defaults), self.defaults | given)
        return {n: float(v) if type(getattr(checked, n)) is float else v for n, v in given.items()}


def code_of(name: str, cells: Iterable[nbformat.NotebookNode]) -> fingerprint.Hashes:
    """Return the hash of every module that a notebook can reach, through its cells or its study's declaration."""
    sources = [_without_magics(cell.source) for cell in cells if cell.cell_type == "code"]
    sources += [f"import sibrepro.studies.{folder}.study" for folder, s in studies().items() if s.notebook == name]
    return fingerprint.reachable_from_source("\n".join(sources), ("sibcore", "sibrepro"))


def _without_magics(cell: str) -> str:
    """Return a cell's source without magics and shell lines, or nothing if the rest is not valid Python."""
    text = "\n".join(line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!")))
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


@dataclasses.dataclass(frozen=True)
class Execution:
    """The outcome of executing a notebook.

    Attributes:
        error: what failed and in which cell, or None.
        seconds: how long it took.
        told: the lines of the manifest: what the notebook used and wrote.
    """

    error: str | None
    seconds: float
    told: list[dict[str, Any]]


class Kernel(AsyncKernelManager):
    """A kernel manager that starts the kernel with additional environment variables."""

    environment = Dict().tag(config=True)

    async def start_kernel(self, **options: Any) -> None:
        """Start the kernel with the variables of this process and of `environment`."""
        await super().start_kernel(**options, env={**os.environ, **self.environment})


def execute(
    notebook: Path | nbformat.NotebookNode,
    output: Path,
    parameters: Mapping[str, Any],
    environment: Mapping[str, str],
    limit: float | None = None,
    **options: Any,
) -> Execution:
    """Execute a notebook. If a cell fails, the error is returned and not raised.

    Args:
        notebook: a notebook, or the path of one.
        output: where the executed notebook is written.
        parameters: the parameters that papermill injects.
        environment: environment variables of the kernel besides those of this process.
        limit: the number of seconds after which the notebook is stopped.
        options: options of papermill, such as `stdout_file`, or of nbclient, such as `on_cell_start`.
    """
    started = time.monotonic()
    error = None
    output.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sib-") as scratch:  # a short name, because socket paths have a limit
        manifest_file = Path(scratch) / "manifest"
        kernel = {
            # Sockets are files. Kernels that start at the same moment may choose the same port, and then one dies.
            "transport": "ipc",
            "ip": f"{scratch}/kernel",
            "environment": {"SIB_MANIFEST": str(manifest_file), **environment},
        }
        try:
            papermill.execute_notebook(
                notebook,
                output,
                parameters=dict(parameters),
                kernel_name="python3",
                progress_bar=False,
                kernel_manager_class=Kernel,
                config=Config(Kernel=kernel),
                shutdown_kernel="immediate",
                timeout_func=lambda cell: limit and max(limit - (time.monotonic() - started), 1e-3),
                **options,
            )
        except Exception as failure:  # of a cell, or a dead or missing kernel, a time limit, a full disk
            error = f"{type(failure).__name__}: {failure}"
            if isinstance(failure, CellTimeoutError):
                error = f"TimeoutError: not finished after {limit:g} s"
            cells = nbformat.read(output, as_version=4).cells if output.is_file() else []
            error = _error_in(cells, error) or error
        return Execution(error, round(time.monotonic() - started, 3), manifest.read(manifest_file))


def read_back(content: dict[str, Any]) -> tuple[dict[str, Any], Execution]:
    """Return the parameters and the outcome of a notebook that was executed by calling `papermill` directly.

    Args:
        content: the executed notebook.

    Raises:
        ValueError: if the execution is not finished.
        KeyError: if papermill did not execute it.
    """
    about, cells = content["metadata"]["papermill"], content["cells"]
    if not about["end_time"]:
        raise ValueError("papermill is not at its end yet")
    parameters = params.in_cells(cells)
    for name, value in about["parameters"].items():
        parameters[name] = float(value) if type(parameters.get(name)) is float else value
    outputs = [output for cell in cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    text = "".join("".join(output["text"]) for output in outputs)
    told = [{"kind": "run", "what": name} for name in re.findall(local.SAID, text, re.MULTILINE)]
    return parameters, Execution(_error_in(cells, "the kernel died"), about["duration"], told)


def _error_in(cells: Iterable[dict], unanswered: str) -> str | None:
    """Return the first error in a notebook and the number of its cell, or None if there is none.

    Args:
        cells: the notebook's cells.
        unanswered: the error of a cell that has not finished, for instance because the kernel died.
    """
    # papermill adds a cell with this tag that repeats the error
    own = (cell for cell in cells if "papermill-error-cell-tag" not in cell["metadata"].get("tags", []))
    for index, cell in enumerate(own, start=1):
        errors = [output for output in cell.get("outputs", []) if output["output_type"] == "error"]
        answered = "shell.execute_reply" in cell["metadata"].get("execution", {})
        if errors or (cell["cell_type"] == "code" and "".join(cell["source"]).strip() and not answered):
            what = f"{errors[0]['ename']}: {errors[0]['evalue']}" if errors else unanswered
            return f"in cell {index}: " + re.sub(r"\x1b\[[0-9;]*m", "", what).strip()
    return None


def refresh(notebook: Path) -> None:
    """Execute a notebook with the values of its parameters cell, and write it back with its outputs."""
    print(f"executing {notebook.name}", flush=True)
    content = nbformat.read(notebook, as_version=4)
    resources = {"metadata": {"path": str(notebook.parent)}}
    NotebookClient(content, timeout=None, kernel_name="python3", resources=resources).execute()
    for cell in content.cells:
        if cell.cell_type == "code":  # progress messages do not belong into the committed notebook
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    write_atomically(notebook, nbformat.writes(content).encode())
    scrub([notebook])


def scrub(notebooks: Iterable[Path]) -> None:
    """Remove metadata that depends on the machine from notebooks, in place."""
    subprocess.run([sys.executable, "-m", "nbstripout", *SCRUB, *map(str, notebooks)], check=True)
