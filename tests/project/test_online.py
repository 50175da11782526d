"""Notebook 00 outside a checkout: the cell that installs the project on Colab, the badges, and Binder's files."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from sibrepro import online, paths

ROOT = paths.PACKAGE.parents[1]
ADDRESS = "https://github.com/someone/some-sib"


def cells(text):
    return [cell for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the files that have to do with the address."""
    for name in ("pyproject.toml", "README.md", online.NOTEBOOK):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def set_address(checkout, address):
    """The checkout with this address in its pyproject.toml, as a person would write it there."""
    path = checkout / "pyproject.toml"
    text = re.sub(r"^Repository = .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    line = f'[project.urls]\nRepository = "{address}"\n' if address else "[project.urls]\n"
    path.write_text(text.replace("[project.urls]\n", line), encoding="utf-8")
    online.write(checkout)


def test_notebook_and_readme_have_the_address_of_pyproject(checkout):
    assert online.write(checkout) == [], "call `python -m sibrepro.online`"


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/", f"{ADDRESS}.git"])
def test_the_address_goes_from_one_place_into_notebook_and_readme_and_out_again(checkout, address):
    set_address(checkout, "")
    before = {name: (checkout / name).read_bytes() for name in ("README.md", online.NOTEBOOK)}
    assert b"mybinder.org" not in before["README.md"]
    assert b"colab.research" not in before["README.md"]

    set_address(checkout, address)
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    assert "(https://colab.research.google.com/github/someone/some-sib/blob/HEAD/notebooks/00_" in readme
    assert "(https://mybinder.org/v2/gh/someone/some-sib/HEAD?labpath=notebooks%2F00_" in readme
    changed = [cell.source for cell in cells((checkout / online.NOTEBOOK).read_text(encoding="utf-8"))]
    assert sum(f"git clone -q --depth 1 {ADDRESS} /content/sib" in source for source in changed) == 1

    set_address(checkout, "")
    assert {name: (checkout / name).read_bytes() for name in before} == before


def test_no_badge_for_a_host_that_colab_and_binder_do_not_open():
    assert online.badges("https://example.org/someone/some-sib") == online.badges("") == []


def test_only_on_colab_the_check_cell_installs_and_imports_from_the_clone(checkout):
    set_address(checkout, ADDRESS)
    source = cells((checkout / online.NOTEBOOK).read_text(encoding="utf-8"))[1].source
    install = ast.unparse([node for node in ast.parse(source).body if isinstance(node, ast.If)])
    script = "\n".join(
        [
            "import sys, types",
            "commands = []",
            "get_ipython = lambda: types.SimpleNamespace(system=commands.append)",
            "if sys.argv[1] == 'colab':",
            "    sys.modules['google.colab'] = types.ModuleType('google.colab')",
            install,
            "print(commands, sys.path[:2])",
        ]
    )
    found = {
        where: subprocess.run([sys.executable, "-c", script, where], capture_output=True, text=True, check=True).stdout
        for where in ("colab", "elsewhere")
    }
    assert found["elsewhere"].startswith("[] ")
    assert f"git clone -q --depth 1 {ADDRESS} /content/sib" in found["colab"]
    assert "pip install -q '/content/sib[notebooks]'" in found["colab"]
    assert "['/content/sib', '/content/sib/notebooks']" in found["colab"]


@pytest.mark.thorough
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the project is not a clone")
def test_a_clone_on_the_path_is_all_that_notebook_00_needs(tmp_path):
    """As on Colab: the clone, with its published results, is used and not an installed package."""
    clone = tmp_path / "sib"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", clone], check=True)
    source = (
        "import sys\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "from sibrepro import paths\n"
        "from sibrepro.studies.ten_minutes import one_task\n"
        "one_task.published(1), one_task.test_features()\n"
        "print(paths.root())\n"
    )
    command = [sys.executable, "-c", source, str(clone), str(clone / "notebooks")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIB_")}
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(clone)


def test_binder_s_files_are_what_repo2docker_looks_for():
    folder = ROOT / ".binder"
    assert sorted(path.name for path in folder.iterdir()) == ["postBuild", "runtime.txt"]
    assert re.fullmatch(r"python-3\.\d+\n", (folder / "runtime.txt").read_text())
    script = folder / "postBuild"
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", script], check=True)
    named = re.findall(r"-r (\S+)", script.read_text())
    assert named == ["requirements.txt"]
    assert (ROOT / "requirements.txt").is_file()
