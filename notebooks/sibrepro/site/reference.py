"""The reference: pages of the public modules from their docstrings, by pdoc, with the site's menu and colours."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pdoc

import sibcore
from sibrepro import paths
from sibrepro.site.notebook_pages import ASSETS

FOLDER = "api"
INDEX = f"{FOLDER}/index.html"
MODULES = ["sibcore", "sibcore.apply.classifier", "sibrepro.rivals", "sibcore.datasets", "sibcore.vision.features"]


def pages() -> dict[str, str]:
    """Return the pages of the documented modules, by the path of their source in the checkout."""
    found = {}
    root = paths.root()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that sibcore imports when they are used
        documented = list(pdoc.extract.walk_specs(MODULES))
    for module in documented:
        page = f"{FOLDER}/{module.replace('.', '/')}.html"
        path = module.replace(".", "/")
        home = "notebooks/" if module.startswith("sibrepro") else ""
        if (root / home / path).is_dir():
            found |= {f"{home}{path}": page, f"{home}{path}/__init__.py": page}
        else:
            found[f"{home}{path}.py"] = page
    return found


def write(folder: Path, menu: Sequence[tuple[str, str]]) -> None:
    """Write the reference.

    Args:
        folder: the site's folder.
        menu: the sections of the site, as pairs of page and name.
    """
    version = f"sibcore {sibcore.__version__}, by pdoc"
    options = {"docformat": "google", "search": False, "show_source": False, "math": False, "footer_text": version}
    pdoc.render.configure(**options, template_directory=ASSETS / "api")
    pdoc.render.env.globals["menu"] = list(menu)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above; their modules document them
        pdoc.pdoc(*MODULES, output_directory=folder / FOLDER)
