"""axe-core, which finds barriers in pages: where it is, and what it says of the page that a browser shows."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium import webdriver

RUN = """
const done = arguments[0];
axe.run({resultTypes: ["violations"]}).then(done, error => done({error: String(error)}));
"""
SERIOUS = ("serious", "critical")


def find() -> Path | None:
    """Return the file of axe-core: the one that `SIB_AXE` names, such as a newer one, or that of axe-core-python."""
    if named := os.environ.get("SIB_AXE"):
        return Path(named)
    package = importlib.util.find_spec("axe_core_python")
    return Path(package.origin).parent / "axe.min.js" if package and package.origin else None


needs_axe = pytest.mark.skipif(find() is None, reason="needs axe-core (pip install axe-core-python, or SIB_AXE)")


def violations(driver: webdriver.Chrome) -> list[str]:
    """Return the serious and critical violations of the page that is shown, with all that can be opened open."""
    driver.execute_script(find().read_text(encoding="utf-8"))
    driver.execute_script("document.querySelectorAll('details').forEach(details => { details.open = true })")
    result = driver.execute_async_script(RUN)
    assert "error" not in result, result["error"]
    return [
        f"{found['id']} ({len(found['nodes'])}): {found['help']}, as in {found['nodes'][0]['html'][:200]}"
        for found in result["violations"]
        if found["impact"] in SERIOUS
    ]
