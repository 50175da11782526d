"""Executing one notebook with papermill: in a kernel of its own, with an environment of its own."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill import PapermillExecutionError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger
from traitlets.config import Config

from sibrepro import params
from sibrepro.facts import local, manifest


@dataclasses.dataclass(frozen=True)
class Execution:
    error: str | None  # what failed, and in which cell
    seconds: float
    told: list[dict[str, Any]]  # what the notebook used and made; see `manifest`


class Engine(NBClientEngine):
    """papermill's engine, with an environment for the kernel alone and a time limit for the whole notebook."""

    NAME = "sib"

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, environment: Mapping[str, str], limit: float | None, **options: Any
    ) -> NotebookNode:
        started = time.monotonic()
        client = PapermillNotebookClient(
            nb_man,
            kernel_name=kernel_name,
            log=logger,
            startup_timeout=options.pop("start_timeout"),
            timeout_func=lambda cell: limit and max(limit - (time.monotonic() - started), 1e-3),
            **{name: value for name, value in options.items() if name != "input_path"},
        )
        try:
            return client.execute(env={**os.environ, **environment})
        except CellTimeoutError:
            raise _failure(nb_man.nb, "timeout", f"not finished after {limit:g} s") from None
        except DeadKernelError as error:
            raise _failure(nb_man.nb, "DeadKernelError", str(error)) from None


papermill_engines.register(Engine.NAME, Engine)


def execute(
    notebook: Path | NotebookNode,
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
    with tempfile.TemporaryDirectory(prefix="sib-") as scratch:  # a short name, for the path of a socket is limited
        told = Path(scratch) / "manifest"
        # Files, not ports: kernels that start at the same moment may choose the same port, and then one dies.
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{scratch}/kernel"})
        try:
            papermill.execute_notebook(
                notebook,
                output,
                parameters=dict(parameters),
                engine_name=Engine.NAME,
                kernel_name="python3",
                progress_bar=False,
                environment={"SIB_MANIFEST": str(told), **environment},
                limit=limit,
                shutdown_kernel="immediate",
                config=sockets,
                **options,
            )
        except Exception as failure:  # a cell, a dead or missing kernel, a full disk
            error = what_failed(failure)
        return Execution(error, round(time.monotonic() - started, 3), manifest.read(told))


def what_failed(error: Exception) -> str:
    """papermill's error in one line: the cell, if it was one, and what went wrong there."""
    if hasattr(error, "cell_index"):
        return _in_cell(error.cell_index, error.ename, error.evalue)
    return f"{type(error).__name__}: {_plain(str(error))}"


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
    return parameters, Execution(_error_in(cells), about["duration"], told)


def _error_in(cells: Iterable[dict]) -> str | None:
    own = (cell for cell in cells if "papermill-error-cell-tag" not in cell["metadata"].get("tags", []))
    for index, cell in enumerate(own):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                return _in_cell(index, output["ename"], output["evalue"])
        asked = cell["cell_type"] == "code" and "".join(cell["source"]).strip()
        if asked and "shell.execute_reply" not in cell["metadata"].get("execution", {}):  # and no answer came
            return f"in cell {index + 1}: the kernel died"
    return None


def _failure(notebook: NotebookNode, name: str, value: str) -> PapermillExecutionError:
    """What papermill leaves without a cell: that is the last one it started."""
    started = [cell for cell in notebook.cells if cell.metadata.papermill["start_time"]]
    return PapermillExecutionError(len(started) - 1, len(started), started[-1].source, name, value, [])


def _in_cell(index: int, name: str, value: str) -> str:
    return f"in cell {index + 1}: {_plain(name)}: {_plain(value)}"


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
