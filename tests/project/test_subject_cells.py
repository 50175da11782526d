"""The cells that a reader copies: the subject of a notebook, in plain PyTorch and `sibcore`, runs in an empty one."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

from sibrepro import paths

NOTEBOOKS = sorted((paths.PACKAGE.parents[1] / "notebooks").glob("*.ipynb"))
# What `pip install sibcore` does not bring cannot be imported.
WITHOUT_EXTRAS = """
import sys

for name in ("sibrepro", "pandas", "scipy", "sklearn", "matplotlib", "seaborn", "IPython", "papermill", "pydantic"):
    sys.modules[name] = None
"""
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def subject_of(path) -> list[str]:
    """The sources of the cells tagged `subject`, in their order."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if "subject" in cell.metadata.get("tags", [])]


@each_notebook
def test_every_notebook_shows_its_subject_in_its_own_cells(path):
    lines = [line for source in subject_of(path) for line in source.splitlines() if line.strip()]
    assert len(lines) >= 10


@pytest.mark.thorough
@each_notebook
def test_copied_into_an_empty_notebook_the_subject_runs(path, tmp_path):
    script = tmp_path / "copied.py"
    script.write_text("\n\n".join([WITHOUT_EXTRAS, *subject_of(path)]), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
