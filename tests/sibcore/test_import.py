"""What `import sibcore` costs and pulls in."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sibcore

pytestmark = pytest.mark.thorough

ALLOWED = {"sibcore", "torch", "numpy", "scipy", "safetensors", "tqdm", *sys.stdlib_module_names}
FOREIGN = {
    "pandas",
    "matplotlib",
    "seaborn",
    "pydantic",
    "papermill",
    "IPython",
    "torchvision",
    "PIL",
    "sibrepro",
    "sklearn",
}


def fresh(code: str) -> dict:
    """What `code` puts into `found`, in an interpreter of its own."""
    script = f"import json, sys, time\nfound = {{}}\n{code}\nprint(json.dumps(found))"
    return json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_it_costs_little_beyond_torch_and_brings_no_foreign_package():
    found = fresh(
        """
import numpy, torch
began, before = time.process_time(), set(sys.modules)
import sibcore
for name in set(sibcore.__all__) - {"SIBClassifier"}:  # which is a class of scikit-learn's kind
    getattr(sibcore, name)
found["seconds"] = time.process_time() - began
found["packages"] = sorted({name.split(".")[0] for name in set(sys.modules) - before})
"""
    )
    assert not FOREIGN & set(found["packages"])
    assert {"sibcore", "scipy", "safetensors"} <= set(found["packages"])
    assert found["seconds"] < 1, "0.2 seconds of processor time on an idle machine, nearly all of it scipy.special's"


@pytest.mark.parametrize("path", sorted(Path(sibcore.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_the_model_imports_nothing_of_images_tables_or_figures(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert {name.split(".")[0] for name in imported} <= ALLOWED
    assert not [name for name in imported if name.startswith(("sibcore.vision", "sibcore.datasets"))]


def test_the_name_alone_imports_nothing():
    assert fresh("import sibcore\nfound['torch'] = 'torch' in sys.modules") == {"torch": False}


def test_every_name_is_there_and_another_is_refused_by_name():
    assert all(getattr(sibcore, name) is not None for name in sibcore.__all__)
    assert sibcore.SIB is sibcore.sib.SIB
    with pytest.raises(AttributeError, match="sibcore has no 'Sib': expected one of SIB, "):
        sibcore.Sib  # noqa: B018
