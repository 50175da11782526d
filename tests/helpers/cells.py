"""What notebooks draw and tabulate in their own cells.

A cell that a test runs has a tag: "figure:<name>" if it saves that figure, "table:<name>" if it leaves a table.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from matplotlib.figure import Figure

from sibrepro import paths, plots

NOTEBOOKS = paths.PACKAGE.parent
IMPORTS = (ast.Import, ast.ImportFrom)


def tagged(notebook: Path, tag: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a notebook that have this tag."""
    return [cell for cell in nbformat.read(notebook, as_version=4).cells if tag in cell.metadata.get("tags", [])]


def drawn(name: str, **names: Any) -> Figure:
    """Return the figure that a notebook's cell saves under a name such as "03_reliability"."""
    with mock.patch.object(plots, "save") as save:
        run(f"figure:{name}", **names)
    (saved,) = (call.args[0] for call in save.call_args_list if call.args[1] == name)
    return saved


def run(tag: str, **names: Any) -> dict[str, Any]:
    """Run the one cell of all notebooks with this tag, and return what it leaves.

    All imports of its notebook are made first; `names` stand for what its earlier cells would have left.
    """
    ((notebook, cell),) = [(path, cell) for path in NOTEBOOKS.glob("*.ipynb") for cell in tagged(path, tag)]
    space: dict[str, Any] = {}
    exec("\n".join(_imports(notebook)), space)
    space |= names
    exec(cell.source, space)
    return space


def _imports(notebook: Path) -> list[str]:
    sources = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    nodes = (node for source in sources for node in ast.parse(source).body)
    return [ast.unparse(node) for node in nodes if isinstance(node, IMPORTS)]
