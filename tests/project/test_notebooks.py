"""The notebooks keep to their grammar, and their parameters are strict when papermill runs them."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys

import nbformat
import papermill
import pytest
import yaml

from sibrepro import paths
from sibrepro.run.notebook import SCRUB, scrub
from sibrepro.study import studies

FOLDER = paths.PACKAGE.parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def tagged(cells):
    return [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]


def literals(cell) -> dict:
    """The cell's assignments; anything but `name = literal` raises."""
    values = {}
    for node in ast.parse(cell.source).body:
        assert isinstance(node, ast.Assign), ast.unparse(node)
        values[node.targets[0].id] = ast.literal_eval(node.value)
    return values


def test_every_notebook_is_of_a_study_and_every_study_has_its_notebook():
    assert {path.stem for path in NOTEBOOKS} == {study.notebook for study in studies().values()}


@each_notebook
def test_one_parameters_cell_of_plain_literals_comes_first_and_is_validated_next(path):
    cells = code_cells(path)
    assert tagged(cells) == [cells[0]]
    assert literals(cells[0])
    assert "check(" in cells[1].source
    assert "globals()" in cells[1].source


@each_notebook
def test_only_the_cells_of_the_subject_define_classes_functions_or_loops_of_training(path):
    others = [cell for cell in code_cells(path) if "subject" not in cell.metadata.get("tags", [])]
    source = "\n".join(cell.source for cell in others)
    nodes = list(ast.walk(ast.parse(source)))
    assert not [node for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    assert ".backward(" not in source


@each_notebook
def test_it_says_what_one_learns_and_what_came_out(path):
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert "What you will learn" in texts[0]
    assert "Result" in texts[0]
    headings = [line for text in texts for line in text.splitlines() if line.startswith("## ")]
    assert headings[-2:] == ["## What we found", "## What we could not reproduce"]


@each_notebook
def test_committed_outputs_are_complete_and_without_errors(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert not [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]


@each_notebook
def test_nbval_has_outputs_to_compare(path):
    checked = [cell for cell in code_cells(path) if "NBVAL_CHECK_OUTPUT" in cell.source]
    assert checked
    assert all(any(output.get("name") == "stdout" for output in cell.outputs) for cell in checked)


@pytest.mark.thorough
@each_notebook
def test_metadata_is_scrubbed(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    scrub([copy])
    assert copy.read_text() == path.read_text()


@each_notebook
def test_every_picture_is_described(path):
    cells = [cell for cell in code_cells(path) if any("image/png" in o.get("data", {}) for o in cell.outputs)]
    assert [cell.source for cell in cells if len(cell.metadata.get("alt", "")) < 30] == []


def test_the_commit_hook_scrubs_as_publish_does():
    hooks = yaml.safe_load((FOLDER.parent / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (entry,) = (hook["entry"] for hook in hooks if hook["id"] == "scrub-notebooks")
    assert shlex.split(entry) == ["nbstripout", *SCRUB]


@each_notebook
def test_no_output_names_a_folder_of_one_machine(path):
    text = path.read_text()
    assert str(paths.PACKAGE.parents[1]) not in text
    assert "/home/" not in text


@each_notebook
def test_the_quick_profile_is_what_a_reader_opens_and_other_profiles_use_known_names(path):
    defaults = literals(code_cells(path)[0])
    profiles = {p: yaml.safe_load((FOLDER / "params" / p / f"{path.stem}.yaml").read_text()) for p in paths.PROFILES}
    assert profiles["quick"] == defaults
    for values in profiles.values():
        assert set(values) <= set(defaults)
        assert all(type(value) is type(defaults[name]) for name, value in values.items())


@pytest.mark.thorough
@each_notebook
def test_a_misspelt_parameter_stops_papermill_at_once_and_the_parameters_are_listed(path, tmp_path):
    with pytest.raises(papermill.PapermillExecutionError) as error:
        papermill.execute_notebook(path, tmp_path / "out.ipynb", parameters={"Kk": 5}, progress_bar=False)
    assert "Kk: there is no such parameter" in error.value.evalue
    assert all(name in error.value.evalue for name in literals(code_cells(path)[0]))
    executed = [cell for cell in code_cells(tmp_path / "out.ipynb") if cell.execution_count]
    assert len(executed) == 3  # the parameters, the injected ones, the check


@pytest.mark.exhaustive
def test_papermill_s_command_works_from_another_folder(tmp_path):
    command = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        str(FOLDER / "02_spinning_lines.ipynb"),
        "out.ipynb",
    ]
    changes = {"n": 64, "K": 5, "epochs": 2, "tasks": 16, "seeds": 2}
    for name, value in changes.items():
        command += ["-p", name, str(value)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    # with two epochs the learning is not done, and the notebook's own assertions may say so; it must get that far
    cells = code_cells(tmp_path / "out.ipynb")
    assert "ParameterError" not in result.stderr
    assert any("n=64" in str(cell.outputs) and "K=5" in str(cell.outputs) for cell in cells)
    assert (paths.figures() / "02_figure_3.png").is_file()
