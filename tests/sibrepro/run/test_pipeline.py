from __future__ import annotations

import json

import nbformat
import pytest
from made_up import record
from nbformat.v4 import new_code_cell, new_notebook

from sibrepro import __main__, paths
from sibrepro.facts import Experiment, publish
from sibrepro.run import pipeline

WRITE = """
from sibrepro import plots
plots.keep(str(n).encode(), "plot.png")
print("n is", n)
"""
EXPERIMENT = """
from sibrepro.facts import Experiment
record = Experiment("answers", dict, lambda p: ({"answer": 42.0 + p["n"]}, {}), tolerance={"*": 0.5}).run({"n": n})
"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two notebooks: one writes a figure, one fails in its third cell."""
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    monkeypatch.delenv("SIB_OUTPUT")
    add(tmp_path, "01_good", [("n = 1", ["parameters"]), (WRITE, [])], {"n": 1})
    add(tmp_path, "02_bad", [("n = 1", ["parameters"]), ("m = n", []), ("raise KeyError('lost')", [])], {})
    return tmp_path


def add(root, name, cells, quick):
    (root / "notebooks" / "params" / "quick").mkdir(parents=True, exist_ok=True)
    content = [new_code_cell(source, metadata={"tags": tags}) for source, tags in cells]
    nbformat.write(new_notebook(cells=content, metadata=KERNEL), root / "notebooks" / f"{name}.ipynb")
    (root / "notebooks" / "params" / "quick" / f"{name}.yaml").write_text(json.dumps(quick))


@pytest.mark.thorough
def test_a_failing_notebook_is_named_with_cell_and_error_while_the_others_run(project, capfd):
    assert __main__.main(["run"]) == 1
    said = capfd.readouterr().out
    assert "01_good" in said
    assert "figures/plot.png" in said
    assert "FAILED: 02_bad" in said
    assert "in cell 3: KeyError: 'lost'" in said
    assert (paths.local() / "executed/quick/02_bad.ipynb").is_file()
    assert "n is 1" in said, "a notebook's own output is shown as it comes"
    assert "cell 1:" in said


@pytest.mark.thorough
def test_only_what_changed_is_run_again(project, capfd):
    good = pipeline.jobs("quick", ["01"])
    assert [o.status for o in pipeline.run_all(good)] == ["done"]
    assert [o.status for o in pipeline.run_all(good)] == ["unchanged"]
    assert pipeline.jobs("quick", ["01"])[0].why() is None

    (paths.local() / "figures/plot.png").unlink()
    assert "figures/plot.png is gone" in good[0].why()
    assert [o.status for o in pipeline.run_all(good)] == ["done"]

    add(project, "01_good", [("n = 1", ["parameters"]), (WRITE, [])], {"n": 2})
    changed = pipeline.jobs("quick", ["01"])
    assert "changed" in changed[0].why()
    assert [o.status for o in pipeline.run_all(changed)] == ["done"]
    assert (paths.local() / "figures/plot.png").read_bytes() == b"2"

    add(project, "01_good", [("n = 1", ["parameters"]), (WRITE + "\n1 + 1", [])], {"n": 2})
    assert "changed" in pipeline.jobs("quick", ["01"])[0].why()
    assert __main__.main(["run", "--list", "--only", "01"]) == 0
    assert "would run" in capfd.readouterr().out


def test_changed_code_or_facts_make_a_notebook_run_again(project, monkeypatch):
    job = pipeline.jobs("quick", ["01"])[0]
    job.executed.parent.mkdir(parents=True)
    job.executed.touch()
    state = {"content": job.content(), "code": job.code, "seconds": 1.0, "products": []}
    job.state.write_text(json.dumps(state))
    assert "sibrepro.plots" in state["code"]
    assert job.why() is None
    job.state.write_text(json.dumps(state | {"code": state["code"] | {"sibrepro.plots": "another"}}))
    assert job.why() == "code changed: sibrepro.plots"
    job.state.write_text(json.dumps(state))
    monkeypatch.setattr(pipeline, "_facts", lambda: "other facts")
    assert "facts changed" in job.why()


@pytest.mark.parametrize("state", ["", "{", "5", "[]", '{"seconds": 3}'])
def test_a_truncated_state_is_a_first_run_and_stops_nothing(project, state, monkeypatch):
    monkeypatch.setattr(paths, "PROFILES", ("quick",))
    job = pipeline.jobs("quick", ["01"])[0]
    job.executed.parent.mkdir(parents=True)
    job.executed.touch()
    job.state.write_text(state)
    assert job.why() == "first run"
    assert pipeline.executed() == {}


@pytest.mark.thorough
def test_what_was_executed_by_older_code_is_not_shown_as_executed_here(project, monkeypatch):
    monkeypatch.setattr(paths, "PROFILES", ("quick",))
    pipeline.run_all(pipeline.jobs("quick", ["01"]))
    assert set(pipeline.executed()) == {"01_good"}
    monkeypatch.setattr(pipeline.Job, "code", {"sibrepro.plots": "newer"})
    assert pipeline.executed() == {}


def test_only_picks_by_number_or_name_and_an_unknown_one_lists_what_there_is(project, capfd):
    assert [job.name for job in pipeline.jobs("quick", ["02"])] == ["02_bad"]
    assert [job.name for job in pipeline.jobs("quick", ["good,02"])] == ["01_good", "02_bad"]
    assert __main__.main(["run", "--only", "77"]) == 2
    error = capfd.readouterr().err
    assert "77" in error
    assert "01_good" in error


def test_a_profile_without_parameters_for_a_notebook_is_an_error_that_names_the_file(project):
    with pytest.raises(ValueError, match=r"notebooks/params/cpu/01_good.yaml is missing"):
        pipeline.jobs("cpu")


@pytest.mark.thorough
def test_a_kernel_that_dies_is_reported_and_does_not_stop_the_others(project):
    add(project, "00_dies", [("n = 1", ["parameters"]), ("import os; os._exit(9)", [])], {})
    outcomes = pipeline.run_all(pipeline.jobs("quick", ["00", "01"]))
    assert [o.status for o in outcomes] == ["FAILED", "done"]
    assert "DeadKernelError" in outcomes[0].error


@pytest.fixture
def with_facts(project):
    """A notebook whose run is published with answer 42 + n."""
    add(project, "03_asks", [("n = 1", ["parameters"]), (EXPERIMENT, [])], {"n": 1})
    experiment = Experiment("answers", dict, None)
    publish.add(experiment, [record(experiment, {"n": 1}, {"answer": 43.0})])
    return experiment


@pytest.mark.thorough
def test_the_quick_profile_computes_published_runs_again_and_says_how_they_fared(with_facts, capfd):
    assert __main__.main(["run", "--only", "03"]) == 0
    said = capfd.readouterr()
    assert f"{with_facts.id({'n': 1})}: computing" in said.err
    assert "Recomputed 1 published run: 1 of 1 agree, largest deviation 0 times the tolerance." in said.out
    assert __main__.main(["run", "--only", "03"]) == 0
    assert "Recomputed 1 published run: 1 of 1 agree" in capfd.readouterr().out, "also where nothing had to run again"


@pytest.mark.thorough
def test_a_published_number_that_is_wrong_is_named_and_the_command_fails(with_facts, capfd):
    publish.add(with_facts, [record(with_facts, {"n": 1}, {"answer": 44.0})])
    assert __main__.main(["run", "--only", "03"]) == 1
    said = capfd.readouterr().out
    assert f"{with_facts.id({'n': 1})}: DISAGREES with the published run: answer 44 -> 43" in said
    assert "published with commit 0000" in said
    assert "Recomputed 1 published run: 0 of 1 agree" in said


@pytest.mark.thorough
def test_started_again_what_was_finished_is_loaded(with_facts, project, capfd):
    fails = [("n = 1", ["parameters"]), (EXPERIMENT, []), ("raise KeyError('lost')", [])]
    add(project, "03_asks", fails, {"n": 1})
    assert __main__.main(["run", "--only", "03"]) == 1
    add(project, "03_asks", fails[:2], {"n": 1})
    capfd.readouterr()
    assert __main__.main(["run", "--only", "03"]) == 0
    said = capfd.readouterr().err
    assert f"{with_facts.id({'n': 1})}: loaded" in said
    assert "computing" not in said


@pytest.mark.thorough
def test_no_tracked_file_is_written(with_facts, project):
    tracked = [project / "results" / "facts", project / "figures", project / "results" / "tables"]
    before = {file: file.read_bytes() for folder in tracked for file in folder.rglob("*") if file.is_file()}
    pipeline.run_all(pipeline.jobs("quick", ["01", "03"]))
    after = {file: file.read_bytes() for folder in tracked for file in folder.rglob("*") if file.is_file()}
    assert after == before
    assert (paths.local() / "figures" / "plot.png").read_bytes() == b"1"
