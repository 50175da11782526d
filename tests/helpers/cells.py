"""Figures that notebooks draw in their own cells."""

from __future__ import annotations

import ast
from unittest import mock

import nbformat
from matplotlib.figure import Figure

from sibrepro import paths, plots

FOLDER = paths.PACKAGE.parent
IMPORTS = (ast.Import, ast.ImportFrom)


def drawn(name: str, **names: object) -> Figure:
    """What the notebook's cell that saves the figure `name`, such as "03_reliability", draws with these names.

    All imports of the notebook are made first; `names` stand for what earlier cells would have left.
    """
    (path,) = FOLDER.glob(f"{name[:2]}_*.ipynb")
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (cell,) = [source for source in sources if f'"{name}"' in source]
    imports = [node for source in sources for node in ast.parse(source).body if isinstance(node, IMPORTS)]
    space: dict[str, object] = {}
    exec("\n".join(map(ast.unparse, imports)), space)
    with mock.patch.object(plots, "save") as save:
        exec(cell, space | names)
    return save.call_args.args[0]
