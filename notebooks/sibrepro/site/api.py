"""The reference of `sibcore` for the report: every public module, from its docstrings, by pdoc."""

from __future__ import annotations

import warnings
from pathlib import Path

import pdoc

import sibcore

MODULES = ["sibcore", "sibcore.apply.classifier", "sibcore.baselines", "sibcore.datasets", "sibcore.vision.features"]


def write(folder: Path) -> None:
    """Pages without script, `index.html` first."""
    version = f"sibcore {sibcore.__version__}"
    pdoc.render.configure(docformat="markdown", search=False, show_source=False, math=False, footer_text=version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that sibcore imports when they are used: they are in their modules
        pdoc.pdoc(*MODULES, output_directory=folder)
