"""What `import sibcore` brings, costs and does not import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sibcore

pytestmark = pytest.mark.thorough

ALLOWED = {"sibcore", "torch", "numpy", "safetensors", "tqdm", *sys.stdlib_module_names}
HEAVY = {
    "IPython",
    "PIL",
    "filelock",
    "matplotlib",
    "pandas",
    "papermill",
    "pydantic",
    "scipy",
    "seaborn",
    "sibrepro",
    "sklearn",
    "torchvision",
    "yaml",
}


def in_a_fresh_interpreter(code: str) -> dict:
    """Run `code` in an interpreter of its own and return the dictionary `found` that it filled."""
    script = f"import json, sys, time\nfound = {{}}\n{code}\nprint(json.dumps(found))"
    return json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_it_costs_little_beyond_torch_and_brings_no_heavy_package():
    found = in_a_fresh_interpreter(
        """
import numpy, torch
began, before = time.process_time(), set(sys.modules)
import sibcore
found["seconds"] = time.process_time() - began
found["packages"] = sorted({name.split(".")[0] for name in set(sys.modules) - before})
"""
    )
    assert not HEAVY & set(found["packages"])
    assert {"sibcore", "safetensors"} <= set(found["packages"])
    assert found["seconds"] < 1, "about 0.1 seconds of processor time on an idle machine"


@pytest.mark.parametrize("path", sorted(Path(sibcore.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_core_imports_only_what_an_installation_brings(path):
    imported = set()
    for node in ast.parse(path.read_text()).body:  # scipy is imported inside the one function that needs it
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert {name.split(".")[0] for name in imported} <= ALLOWED


def test_every_public_name_is_there_without_a_further_import():
    assert all(getattr(sibcore, name) is not None for name in sibcore.__all__)
    assert sibcore.SIB is sibcore.sib.SIB
    assert not hasattr(sibcore, "__getattr__")
