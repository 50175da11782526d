"""What notebooks draw and tabulate in their own cells."""

from __future__ import annotations

import ast
from typing import Any
from unittest import mock

import nbformat
from matplotlib.figure import Figure

from sibrepro import paths, plots

FOLDER = paths.PACKAGE.parent
IMPORTS = (ast.Import, ast.ImportFrom)


def drawn(name: str, **names: Any) -> Figure:
    """The figure that a notebook saves under a name such as "03_reliability"."""
    with mock.patch.object(plots, "save") as save:
        run(name[:2], f'"{name}"', **names)
    return save.call_args.args[0]


def run(notebook: str, text: str, **names: Any) -> dict[str, Any]:
    """What the one cell of a notebook that has this text leaves; `names` stand for what earlier cells would have left.

    All imports of the notebook are made first.
    """
    (path,) = FOLDER.glob(f"{notebook}_*.ipynb")
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (cell,) = [source for source in sources if text in source]
    imports = [node for source in sources for node in ast.parse(source).body if isinstance(node, IMPORTS)]
    space: dict[str, Any] = {}
    exec("\n".join(map(ast.unparse, imports)), space)
    space |= names
    exec(cell, space)
    return space
