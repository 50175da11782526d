"""Run single cells of notebooks, which draw figures or make tables.

A cell that a test runs has a tag: "figure:<name>" if it saves that figure, "table:<name>" if it leaves a table.
"""

from __future__ import annotations

import ast
from typing import Any
from unittest import mock

import nbformat
from matplotlib.figure import Figure

from sibrepro import paths, plots

NOTEBOOKS = paths.PACKAGE.parent


def drawn(name: str, **names: Any) -> Figure:
    """Return the figure that a notebook's cell saves under a name such as "03_reliability".

    Args:
        name: the figure's name.
        names: the variables that earlier cells of the notebook would have left.
    """
    with mock.patch.object(plots, "save") as save:
        run(f"figure:{name}", **names)
    (figure,) = (call.args[0] for call in save.call_args_list if call.args[1] == name)
    return figure


def run(tag: str, **names: Any) -> dict[str, Any]:
    """Run the one cell of all notebooks with this tag, and return the variables that it leaves.

    All imports of its notebook are made first. `names` are the variables that earlier cells would have left.
    """
    tagged = []
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        tagged += [(cells, cell) for cell in cells if tag in cell.metadata.get("tags", [])]
    ((cells, cell),) = tagged
    space: dict[str, Any] = {}
    exec(_imports(cells), space)
    space |= names
    exec(cell.source, space)
    return space


def _imports(cells: list[nbformat.NotebookNode]) -> str:
    """Return the import statements of a notebook's code cells."""
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    imports = [node for node in ast.parse(code).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return ast.unparse(ast.Module(imports, []))
