"""A notebook: its parameters, executing it with papermill, what came of that; and making its file fit for a commit."""

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

# Outputs and execution counts stay: they are what readers see and what nbval compares with. As in the commit hook.
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

    @property
    def code(self) -> str:
        """The fingerprint of the code that it can reach."""
        return fingerprint.digest(code_of(self.name, self.content.cells))

    def conform(self, given: dict[str, Any]) -> dict[str, Any]:
        """`given` with floats where the notebook wants them, or a ValueError that lists the notebook's parameters."""
        checked = params.check(params.class_for(self.source, self.defaults), self.defaults | given)
        return {n: float(v) if type(getattr(checked, n)) is float else v for n, v in given.items()}


def code_of(name: str, cells: Iterable[nbformat.NotebookNode]) -> fingerprint.Hashes:
    """Return the hash of every module that a notebook's cells, and its study's declaration, can reach."""
    sources = [_without_magics(cell.source) for cell in cells if cell.cell_type == "code"]
    sources += [f"import sibrepro.studies.{folder}.study" for folder, s in studies().items() if s.notebook == name]
    return fingerprint.reachable_from_source("\n".join(sources), ("sibcore", "sibrepro"))


def _without_magics(cell: str) -> str:
    """Return a cell without IPython's own lines; nothing of one that is no Python all the same."""
    text = "\n".join(line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!")))
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


@dataclasses.dataclass(frozen=True)
class Execution:
    error: str | None  # what failed, and in which cell
    seconds: float
    told: list[dict[str, Any]]  # what the notebook used and made; see `manifest`


class Kernel(AsyncKernelManager):
    """Jupyter's manager of a kernel, with an environment for that kernel besides this process's."""

    environment = Dict().tag(config=True)

    async def start_kernel(self, **options: Any) -> None:
        await super().start_kernel(**options, env={**os.environ, **self.environment})


def execute(
    notebook: Path | nbformat.NotebookNode,
    output: Path,
    parameters: Mapping[str, Any],
    environment: Mapping[str, str],
    limit: float | None = None,
    **options: Any,
) -> Execution:
    """Execute a notebook into `output`, for at most `limit` seconds. A notebook that fails is no error here.

    The kernel gets `environment` besides this process's, and ends with this process, however that ends. `options` are
    papermill's, such as `stdout_file`, or nbclient's, such as `on_cell_start`.
    """
    started, error = time.monotonic(), None
    output.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sib-") as scratch:  # a short name, for the path of a socket is limited
        told = Path(scratch) / "manifest"
        # Files, not ports: kernels that start at the same moment may choose the same port, and then one dies.
        kernel = {"transport": "ipc", "ip": f"{scratch}/kernel"}
        kernel["environment"] = {"SIB_MANIFEST": str(told), **environment}
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
        except Exception as failure:  # a cell, a dead or missing kernel, a time limit, a full disk
            error = f"{type(failure).__name__}: {failure}"
            if isinstance(failure, CellTimeoutError):
                error = f"TimeoutError: not finished after {limit:g} s"
            cells = nbformat.read(output, as_version=4).cells if output.is_file() else []
            error = _error_in(cells, error) or error
        return Execution(error, round(time.monotonic() - started, 3), manifest.read(told))


def read_back(content: dict[str, Any]) -> tuple[dict[str, Any], Execution]:
    """The parameters, and what came of it, in a notebook that a plain `papermill` call executed.

    A ValueError or KeyError if it is not finished, or not made by papermill.
    """
    about, cells = content["metadata"]["papermill"], content["cells"]
    if not about["end_time"]:
        raise ValueError("papermill is not at its end yet")
    parameters = params.in_cells(cells)
    for name, value in about["parameters"].items():
        parameters[name] = float(value) if type(parameters.get(name)) is float else value
    outputs = [output for cell in cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    text = "".join(line for output in outputs for line in output["text"])
    told = [{"kind": "run", "what": name} for name in re.findall(local.SAID, text, re.MULTILINE)]
    return parameters, Execution(_error_in(cells, "the kernel died"), about["duration"], told)


def _error_in(cells: Iterable[dict], unanswered: str) -> str | None:
    """The first cell with an error, and which; or the first that was asked and did not answer, for that reason."""
    own = (cell for cell in cells if "papermill-error-cell-tag" not in cell["metadata"].get("tags", []))
    for index, cell in enumerate(own, start=1):
        errors = [output for output in cell.get("outputs", []) if output["output_type"] == "error"]
        answered = "shell.execute_reply" in cell["metadata"].get("execution", {})
        if errors or (cell["cell_type"] == "code" and "".join(cell["source"]).strip() and not answered):
            what = f"{errors[0]['ename']}: {errors[0]['evalue']}" if errors else unanswered
            return f"in cell {index}: " + re.sub(r"\x1b\[[0-9;]*m", "", what).strip()
    return None


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
