"""Sweeps on this machine, from the command to the table, with notebooks that crash, hang and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import nbformat
import pandas as pd
import papermill
import psutil
import pytest
import tiny_notebooks as tiny
from filelock import Timeout

from sibrepro import __main__, paths
from sibrepro.run.sweep import attempt, grid, plan
from sibrepro.run.sweep.point import Point, read_executed, read_result

BEHAVE = """
import os, time
from pathlib import Path
from sibrepro import paths
assert mode != "crash" or Path({folder!r}, "mended").exists(), "crashed"
if mode == "die":
    os._exit(9)
paths.figures().mkdir(parents=True, exist_ok=True)
(paths.figures() / "plot.txt").write_text(os.environ["OMP_NUM_THREADS"])
"""
HANG = """
import os, time
with open({folder!r} + "/kernel", "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


def sweep(*arguments: object) -> int:
    return __main__.main(["sweep", *map(str, arguments)])


def folder(name: str = "tiny"):
    return paths.results() / "sweeps" / name


def table(name: str = "tiny") -> pd.DataFrame:
    return pd.read_csv(folder(name) / "table.csv")


def test_points_that_crash_or_lose_their_kernel_are_recorded_while_the_rest_go_on(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(plan, "cores", lambda: 6)
    notebook = tiny.write(tmp_path, tiny.COUNT, BEHAVE, tiny.RECORD)
    tiny.record_of(1)
    assert sweep(notebook, "-g", "mode=plain,crash,die", "-j", 2) == 1
    said = capfd.readouterr().out
    assert "in cell 4: AssertionError: crashed" in said
    assert "DeadKernelError" in said
    assert "done 1/3, running 0, failed 2" in said
    rows = table().set_index("mode")
    assert dict(rows["point_status"]) == {"plain": "done", "crash": "failed", "die": "failed"}
    assert rows.loc["plain", "double"] == 2.0
    assert rows.loc["crash", "point_error"].startswith("in cell 4: AssertionError")
    (plotted,) = folder().glob("figures/*/plot.txt")
    assert plotted.read_text() == "3"  # six cores, two at a time
    assert not (paths.output() / "figures").exists()
    assert not list((folder() / ".running").rglob("*.ipynb"))

    (tmp_path / "mended").touch()
    assert sweep(notebook, "-g", "mode=plain,crash,die") == 1
    assert "2 points failed before and stay so" in capfd.readouterr().out
    assert len(tiny.executed(tmp_path)) == 3
    assert sweep(notebook, "-g", "mode=plain,crash", "--retry-failed") == 0
    assert len(tiny.executed(tmp_path)) == 4
    assert list(table()["point_status"]).count("done") == 2


def test_a_sweep_killed_half_way_goes_on_where_it_was_and_computes_no_finished_point_again(tmp_path):
    gate = 'from pathlib import Path\nimport time\nwhile a > 1 and not Path({folder!r}, "go").exists(): time.sleep(0.1)'
    notebook = tiny.write(tmp_path, tiny.COUNT, gate, tiny.RECORD)
    for a in (1, 2, 3):
        tiny.record_of(a)
    arguments = [notebook, "-g", "a=1:4", "-j", "2"]
    log = tmp_path / "log"
    with log.open("w") as file:
        killed = subprocess.Popen([sys.executable, "-m", "sibcore", "sweep", *map(str, arguments)], stdout=file)
    try:
        tiny.until(lambda: {"2", "3"} <= set(tiny.executed(tmp_path)))
        children = psutil.Process(killed.pid).children(recursive=True)
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    lines = (line.split() for line in (tmp_path / "executed").read_text().splitlines())
    assert {int(pid) for a, pid in lines if a != "1"} <= {child.pid for child in children}, "kernels are among them"
    assert psutil.wait_procs(children, timeout=30)[1] == [], "all that it started ends with it"
    assert "done 1/3, running 2" in log.read_text()
    assert sorted(read_result(path).parameters["a"] for path in folder().glob("*.json")) == [1]

    (tmp_path / "go").touch()
    assert sweep(*arguments) == 0
    rows = table()
    assert sorted(rows["a"]) == [1, 2, 3]
    assert (rows["double"] == 2.0 * rows["a"]).all()
    assert sorted(tiny.executed(tmp_path)) == ["1", "2", "2", "3", "3"]


def hanging(tmp_path) -> attempt.Attempt:
    notebook = grid.Notebook.read(tiny.write(tmp_path, HANG))
    started = attempt.Attempt(Point("tiny", notebook, {"a": 2}, ("a",)), paths.output(), attempt.Limits(threads=1))
    tiny.until(lambda: (tmp_path / "kernel").exists() and (tmp_path / "kernel").read_text())
    return started


def kernel_lives(tmp_path) -> bool:
    pid = int((tmp_path / "kernel").read_text())
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_point_over_its_time_is_killed_with_its_kernel_and_recorded_as_failed(tmp_path):
    started = hanging(tmp_path)
    assert started.poll() is None
    started.limits = attempt.Limits(threads=1, timeout=0.01)
    assert "timeout: not finished after 0.01 s" in started.poll().error
    assert read_result(started.files.result) == started.result
    tiny.until(lambda: not kernel_lives(tmp_path), 5)


def test_a_stopped_point_leaves_no_result_and_another_process_cannot_execute_it_at_the_same_time(tmp_path):
    started = hanging(tmp_path)
    with pytest.raises(Timeout):
        attempt.Attempt(started.point, paths.output(), started.limits)
    started.stop()
    tiny.until(lambda: not kernel_lives(tmp_path), 5)
    assert [path.name for path in folder().glob("*.json")] == []
    assert [path for path in (folder() / ".running").iterdir() if path.is_dir()] == []


def test_a_dry_run_and_a_misspelt_parameter_run_nothing(tmp_path, capsys):
    notebook = tiny.write(tmp_path, tiny.COUNT)
    assert sweep(notebook, "-g", "a=1:4", "-p", "eta", "1", "--dry-run", "-j", 2) == 0
    said = capsys.readouterr().out
    assert "would run 3 points, 2 at a time" in said
    assert said.count("run      a=") == 3
    assert sweep(notebook, "-g", "a=1", "-g", "modes=x") == 2
    assert "did you mean mode?" in capsys.readouterr().err
    assert sweep(notebook, "-g", "a=1", "-p", "a", "2") == 2
    assert "a is given twice" in capsys.readouterr().err
    assert not folder().exists()
    assert tiny.executed(tmp_path) == []


def test_names_are_readable_short_and_differ_when_any_parameter_does(tmp_path):
    notebook = grid.Notebook.read(tiny.write(tmp_path))
    given = [{"a": 1, "mode": "x" * 200}, {"a": 1, "mode": "x" * 201}, {"a": 1, "mode": "x/../y"}, {"a": 1}, {"a": 2}]
    names = [Point("tiny", notebook, values, tuple(values)).name for values in given]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 80
    assert all("/" not in name for name in names)
    assert names[3].startswith("a=1-")
    fixed_otherwise = Point("tiny", notebook, {"a": 1, "eta": 0.5}, ("a",)).name
    assert fixed_otherwise != names[3]


def test_what_plain_papermill_put_into_the_folder_counts_and_half_of_it_does_not(tmp_path):
    notebook = tiny.write(tmp_path, tiny.COMPUTE)
    folder().mkdir(parents=True)
    papermill.execute_notebook(notebook, folder() / "mine.ipynb", {"a": 5, "eta": 1}, progress_bar=False)
    text = (folder() / "mine.ipynb").read_text()
    (folder() / "cut.ipynb").write_text(text[: len(text) // 2])
    running = nbformat.reads(text, as_version=4)
    running.metadata.papermill.update(end_time=None, parameters={"a": 7})
    nbformat.write(running, folder() / "running.ipynb")
    assert sweep(notebook, "-g", "a=5,6", "-p", "eta", 1) == 0
    rows = table()
    assert sorted(zip(rows["a"], rows["double"], strict=True)) == [(5, 10.0), (6, 12.0)]
    assert (tmp_path / "computed").read_text().split() == ["5", "6"]
    (point,) = folder().glob("a=6-*.ipynb")
    assert read_executed(point).metrics == {"double": 12.0}, "the same, read from the notebook alone"


def test_a_plain_papermill_call_that_failed_is_a_failed_point(tmp_path):
    for name, cell in {"error": "raise KeyError('lost')", "dead": "import os; os._exit(9)"}.items():
        notebook = tiny.write(tmp_path, cell, "b = 2", name=name)
        with pytest.raises((papermill.PapermillExecutionError, RuntimeError)):
            papermill.execute_notebook(notebook, tmp_path / f"{name}-out.ipynb", {"a": 5}, progress_bar=False)
    assert read_executed(tmp_path / "error-out.ipynb").error == "in cell 3: KeyError: 'lost'"
    assert read_executed(tmp_path / "dead-out.ipynb").error == "in cell 3: the kernel died"


def test_a_folder_of_one_notebook_takes_no_points_of_another(tmp_path, capsys):
    notebook = grid.Notebook.read(tiny.write(tmp_path))
    point = Point("tiny", notebook, {"a": 1}, ("a",))
    result = attempt.Result(point.name, "tiny", point.parameters, None, 1.0, 0.5)
    result.write(point.files(paths.output()).result)
    other = tiny.write(tmp_path, name="other")
    assert sweep(other, "-g", "a=1", "--name", "tiny", "--dry-run") == 2
    assert "holds points of tiny: choose another --name" in capsys.readouterr().err
    assert sweep(other, "-g", "a=1", "--name", "../x", "--dry-run") == 2


def test_points_made_by_other_cells_are_said_to_be_so(tmp_path, capsys):
    notebook = tiny.write(tmp_path, tiny.COUNT)
    point = Point("tiny", grid.Notebook.read(notebook), {"a": 1}, ("a",), "another fingerprint")
    result = attempt.Result(point.name, "tiny", point.parameters, None, 1.0, 0.5, fingerprint=point.fingerprint)
    result.write(point.files(paths.output()).result)
    assert sweep(notebook, "-g", "a=1:3", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "1 points were made by other cells or code" in said
    assert "would run 1 points" in said
    assert sweep(notebook, "-g", "a=1:3", "--dry-run", "--redo") == 0
    assert "would run 2 points" in capsys.readouterr().out
