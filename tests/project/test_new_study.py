"""A new study is files of its own: the template in tests/template is laid over a copy of the project, and all of the
project's commands and tests take it from there, without an edit of any file that was there.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sibrepro import paths

pytestmark = pytest.mark.thorough

ROOT = paths.PACKAGE.parents[1]
TEMPLATE = ROOT / "tests" / "template"
NOTEBOOK = "90_number_of_ways"
COPIED = ("sibcore", "notebooks", "docs", "tests", "figures", "README.md", "pyproject.toml", ".pre-commit-config.yaml")
# tests that go over every study, notebook, table or experiment there is
COMMON = (
    "tests/project/test_notebooks.py",
    "tests/project/test_documents.py",
    "tests/project/test_strays.py",
    "tests/project/test_subject_cells.py",
    "tests/sibrepro/facts/test_ids.py",
    "tests/sibrepro/run/test_verify.py",
    "tests/sibrepro/test_claims.py",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project with the template in it, whose study was run and published."""
    copy = tmp_path_factory.mktemp("new study") / "project"
    ignored = shutil.ignore_patterns("__pycache__", "local", "*.lock")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "results", copy / "results", ignore=ignored, copy_function=os.link)
    before = {file for file in (copy / "notebooks").rglob("*") if file.is_file()}
    shutil.copytree(TEMPLATE / "notebooks", copy / "notebooks", dirs_exist_ok=True)
    assert all(filecmp.cmp(file, ROOT / file.relative_to(copy), shallow=False) for file in before), "files of its own"
    code, said = call(copy, "sib", "run", "--only", "90")
    assert code == 0, said
    code, said = call(copy, "sib", "publish", "--only", "90")
    assert (code, said.count("published number_of_ways-")) == (0, 2), said
    return copy


def call(copy: Path, *command: str) -> tuple[int, str]:
    """Call a command in the copy; its exit code and what it printed."""
    path = os.pathsep.join(map(str, (copy, copy / "notebooks")))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("SIB_OUTPUT", None)
    module = {"sib": "sibrepro", "pytest": "pytest"}[command[0]]
    line = [sys.executable, "-m", module, *command[1:]]
    done = subprocess.run(line, cwd=copy, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_its_facts_table_and_figure_are_written_and_its_notebook_has_outputs(project):
    assert len((project / "results" / "facts" / "number_of_ways.jsonl").read_text().splitlines()) == 2
    assert (project / "results" / "tables" / "number_of_ways.csv").read_text().startswith("ways,ours,ours_ci95,run\n2,")
    assert (project / "figures" / "90_accuracy_over_ways.png").is_file()
    assert "| more ways are harder" in (project / "notebooks" / f"{NOTEBOOK}.ipynb").read_text()


def test_its_runs_are_verified(project):
    code, said = call(project, "sib", "verify", "number_of_ways")
    assert (code, "Recomputed 2 published runs: 2 of 2 agree" in said) == (0, True), said


def test_its_numbers_are_explained(project):
    code, said = call(project, "sib", "explain", "number_of_ways")
    assert (code, said.count("<- number_of_ways-")) == (0, 2), said


def test_its_parameters_are_swept(project):
    code, said = call(project, "sib", "sweep", f"notebooks/{NOTEBOOK}.ipynb", "-g", "episodes=20,30", "-j", "1")
    assert code == 0, said
    table = project / "results" / "local" / "sweeps" / NOTEBOOK / "table.csv"
    assert len(table.read_text().splitlines()) == 3


def test_the_site_shows_it(project):
    code, said = call(project, "sib", "report", "--out", str(project / "site"))
    assert code == 0, said
    assert "more ways are harder" in (project / "site" / "claims.html").read_text()
    assert f"{NOTEBOOK}.html" in (project / "site" / "index.html").read_text()
    assert "Number of ways" in (project / "site" / "table_number_of_ways.html").read_text()


def test_the_tests_of_the_others_cover_it(project):
    chosen = ("-p", "no:cacheprovider", "-n", "0", "-m", "", "-k", "not papermill and not leads_to_a_file")
    code, said = call(project, "pytest", *chosen, *COMMON)
    assert code == 0, said[-3000:]
