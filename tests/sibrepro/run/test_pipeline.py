from __future__ import annotations

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from sibrepro import __main__, paths
from sibrepro.run import pipeline

WRITE = """
from sibrepro.facts import manifest, runs
from sibrepro import paths
write_atomically(paths.figures() / "plot.png", str(n).encode())
manifest.note("figure", paths.figures() / "plot.png")
print("n is", n)
"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two notebooks: one writes a figure, one fails in its third cell."""
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path))
    add(tmp_path, "01_good", [("n = 1", ["parameters"]), (WRITE, [])], {"n": 1})
    add(tmp_path, "02_bad", [("n = 1", ["parameters"]), ("m = n", []), ("raise KeyError('lost')", [])], {})
    return tmp_path


def add(root, name, cells, quick):
    (root / "notebooks" / "params" / "quick").mkdir(parents=True, exist_ok=True)
    content = [new_code_cell(source, metadata={"tags": tags}) for source, tags in cells]
    nbformat.write(new_notebook(cells=content, metadata=KERNEL), root / "notebooks" / f"{name}.ipynb")
    (root / "notebooks" / "params" / "quick" / f"{name}.yaml").write_text(json.dumps(quick))


def test_a_failing_notebook_is_named_with_cell_and_error_while_the_others_run(project, capfd):
    assert __main__.main(["run"]) == 1
    said = capfd.readouterr().out
    assert "01_good" in said
    assert "figures/plot.png" in said
    assert "FAILED: 02_bad" in said
    assert "in cell 3: KeyError: 'lost'" in said
    assert (project / "results/executed/quick/02_bad.ipynb").is_file()
    assert "n is 1" in said, "a notebook's own output is shown as it comes"
    assert "cell 1/" in said


def test_only_what_changed_is_run_again(project, capfd):
    good = pipeline.jobs("quick", ["01"])
    assert [o.status for o in pipeline.run_all(good)] == ["done"]
    assert [o.status for o in pipeline.run_all(good)] == ["unchanged"]
    assert pipeline.jobs("quick", ["01"])[0].why() is None

    (project / "figures/plot.png").unlink()
    assert "figures/plot.png is gone" in good[0].why()
    assert [o.status for o in pipeline.run_all(good)] == ["done"]

    add(project, "01_good", [("n = 1", ["parameters"]), (WRITE, [])], {"n": 2})
    changed = pipeline.jobs("quick", ["01"])
    assert "changed" in changed[0].why()
    assert [o.status for o in pipeline.run_all(changed)] == ["done"]
    assert (project / "figures/plot.png").read_bytes() == b"2"

    add(project, "01_good", [("n = 1", ["parameters"]), (WRITE + "\n1 + 1", [])], {"n": 2})
    assert "changed" in pipeline.jobs("quick", ["01"])[0].why()
    assert __main__.main(["run", "--list", "--only", "01"]) == 0
    assert "would run" in capfd.readouterr().out


def test_changed_code_and_changed_data_make_a_notebook_run_again(project, monkeypatch):
    job = pipeline.jobs("quick", ["01"])[0]
    data = project / "data.zip"
    data.write_bytes(b"old")
    job.executed.parent.mkdir(parents=True)
    job.executed.touch()
    product = {"kind": "data", "path": "data.zip", "sha256": pipeline.sha256(data)}
    job.state.write_text(json.dumps({"fingerprint": job.fingerprint(), "seconds": 1.0, "products": [product]}))
    assert job.why() is None
    data.write_bytes(b"new")
    assert job.why() == "data.zip changed"
    data.write_bytes(b"old")
    monkeypatch.setattr(pipeline.provenance, "code_fingerprint", lambda *_, **__: "other code")
    assert "code changed" in job.why()


def test_only_picks_by_number_or_name_and_an_unknown_one_lists_what_there_is(project, capfd):
    assert [job.name for job in pipeline.jobs("quick", ["02"])] == ["02_bad"]
    assert [job.name for job in pipeline.jobs("quick", ["good,02"])] == ["01_good", "02_bad"]
    assert __main__.main(["run", "--only", "07"]) == 2
    error = capfd.readouterr().err
    assert "07" in error
    assert "01_good" in error


def test_a_profile_without_parameters_for_a_notebook_is_an_error_that_names_the_file(project):
    with pytest.raises(ValueError, match=r"notebooks/params/cpu/01_good.yaml is missing"):
        pipeline.jobs("cpu")


def test_a_kernel_that_dies_is_reported_and_does_not_stop_the_others(project):
    add(project, "00_dies", [("n = 1", ["parameters"]), ("import os; os._exit(9)", [])], {})
    outcomes = pipeline.run_all(pipeline.jobs("quick", ["00", "01"]))
    assert [o.status for o in outcomes] == ["FAILED", "done"]
    assert "DeadKernelError" in outcomes[0].error


def test_the_first_quick_run_computes_what_came_with_the_repository_and_a_later_one_loads(project):
    add(
        project,
        "03_asks",
        [("n = 1", ["parameters"]), ("import os\nprint('force:', repr(os.environ['SIB_FORCE']))", [])],
        {},
    )
    job = pipeline.jobs("quick", ["03"])[0]
    pipeline.run_all([job])
    assert "force: '1'" in job.executed.read_text()
    add(
        project,
        "03_asks",
        [("n = 2", ["parameters"]), ("import os\nprint('force:', repr(os.environ['SIB_FORCE']))", [])],
        {},
    )
    pipeline.run_all([job])
    assert "force: ''" in job.executed.read_text()
    assert paths.output() == project
