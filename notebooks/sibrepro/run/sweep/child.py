"""The process that executes one point: papermill, and nothing heavy beside it.

Its task is one line of JSON on stdin. The end of stdin means that whoever asked is gone, however it went; then this
process and its kernel end too, so that a killed sweep leaves nothing behind that still computes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import psutil


def main() -> None:
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, args=[task["papermill"]["sockets"]], daemon=True).start()
    Path(task["outcome"]).write_text(json.dumps({"error": execute(**task["papermill"])}), encoding="utf-8")


def execute(notebook: str, output: str, parameters: dict, sockets: str) -> str | None:
    """Execute a notebook, given as its text, into `output`; what failed, or None.

    `sockets` is a folder with a short name, to talk to the kernel through. Files, not ports: kernels that start at the
    same moment may choose the same port, and then one dies.
    """
    # jsonschema would build a grammar of IRIs at import, if it can; no notebook has any and it takes seconds.
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from traitlets.config import Config

    try:
        papermill.execute_notebook(
            nbformat.reads(notebook, as_version=4),
            output,
            parameters=parameters,
            kernel_name="python3",
            progress_bar=False,
            request_save_on_cell_execute=False,  # half-done is no result, and saving takes long
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
        )
    except Exception as error:  # a failing cell, a dead kernel, a missing kernel, a full disk
        return what_failed(error)
    return None


def what_failed(error: Exception) -> str:
    """papermill's error in one line: the cell, if it was one, and what went wrong there."""
    if hasattr(error, "cell_index"):
        return what_failed_in(error.cell_index, error.ename, error.evalue)
    return f"{type(error).__name__}: {_plain(str(error))}"


def what_failed_in(cell: int, name: str, value: str) -> str:
    return f"in cell {cell + 1}: {_plain(name)}: {_plain(value)}"


def kill_tree(pid: int) -> None:
    """Kill a process and all that it started; kernels lead sessions of their own, so a group is not enough."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in reversed(family):  # this process itself last
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue


def _end_with_the_parent(sockets: str) -> None:
    while os.read(sys.stdin.fileno(), 1):  # not through the stream, whose lock would be held when this process exits
        pass
    shutil.rmtree(sockets, ignore_errors=True)
    kill_tree(os.getpid())


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


if __name__ == "__main__":
    main()
