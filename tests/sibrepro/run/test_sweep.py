"""Sweeps on this machine, from the grid to the table, with notebooks that crash, hang and die."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import papermill
import psutil
import pytest
import tiny_notebooks as tiny
from dask.system import CPU_COUNT
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from sibrepro import __main__, paths
from sibrepro.run.notebook import Notebook
from sibrepro.run.sweep import grid, table
from sibrepro.run.sweep.point import Point, Result, attempt, key, metrics, read, read_all

SPINNING_LINES = paths.root() / "notebooks" / "02_spinning_lines.ipynb"
NOTEBOOK = {"cells": [], "metadata": {}}
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


def place(name: str = "tiny") -> Path:
    return paths.local() / "sweeps" / name


def rows(name: str = "tiny") -> pd.DataFrame:
    return pd.read_csv(place(name) / "table.csv")


def kernel_lives(tmp_path) -> bool:
    pid = int((tmp_path / "kernel").read_text())
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.exhaustive
def test_points_that_crash_or_lose_their_kernel_are_recorded_while_the_rest_go_on(tmp_path, capfd):
    notebook = tiny.write(tmp_path, tiny.COUNT, BEHAVE, tiny.RECORD)
    tiny.record_of(1)
    assert sweep(notebook, "-g", "mode=plain,crash,die", "-j", 2) == 1
    said = capfd.readouterr().out
    assert "in cell 4: AssertionError: crashed" in said
    assert "in cell 4: DeadKernelError" in said
    lines = [line.split()[0] for line in said.splitlines() if " mode=" in line and "tiny: " in line]
    assert sorted(lines) == ["done", "failed", "failed", "running", "running", "running"], "a line for each event"
    assert "| 3/3 [" in said, "how many, and the time left"
    found = rows().set_index("mode")
    assert dict(found["point_status"]) == {"plain": "done", "crash": "failed", "die": "failed"}
    assert found.loc["plain", "double"] == 2.0
    assert found.loc["crash", "point_error"].startswith("in cell 4: AssertionError")
    (plotted,) = place().glob("figures/*/plot.txt")
    assert plotted.read_text() == str(max(CPU_COUNT // 2, 1)), "the cores are shared by two points at a time"
    assert not (paths.local() / "figures").exists()
    assert not list((place() / ".running").rglob("*.ipynb"))

    (tmp_path / "mended").touch()
    assert sweep(notebook, "-g", "mode=plain,crash,die") == 1
    assert "2 points failed before and stay as they are" in capfd.readouterr().out
    assert len(tiny.executed(tmp_path)) == 3
    assert sweep(notebook, "-g", "mode=plain,crash", "--retry-failed") == 0
    assert len(tiny.executed(tmp_path)) == 4
    assert list(rows()["point_status"]).count("done") == 2


@pytest.mark.exhaustive
def test_a_sweep_killed_half_way_goes_on_where_it_was_and_computes_no_finished_point_again(tmp_path):
    gate = 'from pathlib import Path\nimport time\nwhile a > 1 and not Path({folder!r}, "go").exists(): time.sleep(0.1)'
    notebook = tiny.write(tmp_path, tiny.COUNT, gate, tiny.RECORD)
    for a in (1, 2, 3):
        tiny.record_of(a)
    arguments = [notebook, "-g", "a=1:4", "-j", "2"]
    log = tmp_path / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "sibrepro", "sweep", *map(str, arguments)]
        killed = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        tiny.until(lambda: {"2", "3"} <= set(tiny.executed(tmp_path)) and "done " in log.read_text())
        children = psutil.Process(killed.pid).children(recursive=True)
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    lines = (line.split() for line in (tmp_path / "executed").read_text().splitlines())
    assert {int(pid) for a, pid in lines if a != "1"} <= {child.pid for child in children}, "kernels are among them"
    assert psutil.wait_procs(children, timeout=30)[1] == [], "all that it started ends with it"
    assert log.read_text().count("running  a=") == 3
    assert "| 1/3 [" in log.read_text()
    assert [result.parameters["a"] for result in read_all(place()).values()] == [1]

    (tmp_path / "go").touch()
    assert sweep(*arguments) == 0
    found = rows()
    assert sorted(found["a"]) == [1, 2, 3]
    assert (found["double"] == 2.0 * found["a"]).all()
    assert sorted(tiny.executed(tmp_path)) == ["1", "2", "2", "3", "3"]


@pytest.mark.thorough
def test_a_point_over_its_time_is_killed_with_its_kernel_and_recorded_as_failed(tmp_path, capfd):
    notebook = tiny.write(tmp_path, HANG)
    assert sweep(notebook, "-g", "a=2", "--timeout", "8s") == 1
    assert "in cell 3: TimeoutError: not finished after 8 s" in capfd.readouterr().out
    assert list(rows()["point_status"]) == ["failed"]
    tiny.until(lambda: not kernel_lives(tmp_path), 5)


@pytest.mark.thorough
def test_two_processes_do_not_execute_a_point_at_the_same_time_and_the_second_takes_the_first_s_result(tmp_path):
    point = Point("tiny", Notebook.read(tiny.write(tmp_path, tiny.COUNT)), {"a": 2}, ("a",))
    (place() / ".running").mkdir(parents=True)
    found = []
    with FileLock(place() / ".running" / f"{point.name}.lock"):
        second = threading.Thread(target=lambda: found.append(attempt(point, paths.local(), slots=1)))
        second.start()
        second.join(1)
        assert second.is_alive()
        assert tiny.executed(tmp_path) == []
        result_of(point).write(point.file(".ipynb"), NOTEBOOK)
    second.join()
    assert found == [result_of(point)]
    assert tiny.executed(tmp_path) == []


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
    assert not place().exists()
    assert tiny.executed(tmp_path) == []


def test_names_are_readable_short_and_differ_when_any_parameter_does(tmp_path):
    notebook = Notebook.read(tiny.write(tmp_path))
    given = [{"a": 1, "mode": "x" * 200}, {"a": 1, "mode": "x" * 201}, {"a": 1, "mode": "x/../y"}, {"a": 1}, {"a": 2}]
    names = [Point("tiny", notebook, values, tuple(values)).name for values in given]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 80
    assert all("/" not in name for name in names)
    assert names[3].startswith("a=1-")
    fixed_otherwise = Point("tiny", notebook, {"a": 1, "eta": 0.5}, ("a",)).name
    assert fixed_otherwise != names[3]


@pytest.mark.thorough
def test_what_plain_papermill_put_into_the_folder_counts_and_half_of_it_does_not(tmp_path):
    notebook = tiny.write(tmp_path, tiny.COMPUTE)
    place().mkdir(parents=True)
    papermill.execute_notebook(notebook, place() / "mine.ipynb", {"a": 5, "eta": 1}, progress_bar=False)
    text = (place() / "mine.ipynb").read_text()
    (place() / "cut.ipynb").write_text(text[: len(text) // 2])
    running = nbformat.reads(text, as_version=4)
    running.metadata.papermill.update(end_time=None, parameters={"a": 7})
    nbformat.write(running, place() / "running.ipynb")
    assert sweep(notebook, "-g", "a=5,6", "-p", "eta", 1) == 0
    found = rows()
    assert sorted(zip(found["a"], found["double"], strict=True)) == [(5, 10.0), (6, 12.0)]
    assert (tmp_path / "computed").read_text().split() == ["5", "6"]
    (point,) = place().glob("a=6-*.ipynb")
    content = json.loads(point.read_text())
    del content["metadata"]["sweep"]
    point.write_text(json.dumps(content))
    assert read(point).metrics == {"double": 12.0}, "the same, read from the outputs alone"


@pytest.mark.thorough
def test_a_plain_papermill_call_that_failed_is_a_failed_point(tmp_path):
    for name, cell in {"error": "raise KeyError('lost')", "dead": "import os; os._exit(9)"}.items():
        notebook = tiny.write(tmp_path, cell, "b = 2", name=name)
        with pytest.raises((papermill.PapermillExecutionError, RuntimeError)):
            papermill.execute_notebook(notebook, tmp_path / f"{name}-out.ipynb", {"a": 5}, progress_bar=False)
    assert read(tmp_path / "error-out.ipynb").error == "in cell 3: KeyError: 'lost'"
    assert read(tmp_path / "dead-out.ipynb").error == "in cell 3: the kernel died"


def result_of(point: Point, **more: object) -> Result:
    return Result(point.name, point.notebook.name, point.parameters, None, 1.0, **more)


def test_a_folder_of_one_notebook_takes_no_points_of_another(tmp_path, capsys):
    point = Point("tiny", Notebook.read(tiny.write(tmp_path)), {"a": 1}, ("a",))
    result_of(point).write(point.file(".ipynb"), NOTEBOOK)
    other = tiny.write(tmp_path, name="other")
    assert sweep(other, "-g", "a=1", "--name", "tiny", "--dry-run") == 2
    assert "holds points of tiny: choose another --name" in capsys.readouterr().err
    assert sweep(other, "-g", "a=1", "--name", "../x", "--dry-run") == 2


def test_points_made_by_other_cells_are_said_to_be_so(tmp_path, capsys):
    notebook = tiny.write(tmp_path, tiny.COUNT)
    point = Point("tiny", Notebook.read(notebook), {"a": 1}, ("a",))
    result_of(point, source=key("other cells")).write(point.file(".ipynb"), NOTEBOOK)
    assert sweep(notebook, "-g", "a=1:3", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "1 points were computed before the cells changed" in said
    assert "would run 1 points" in said
    assert sweep(notebook, "-g", "a=1:3", "--dry-run", "--redo") == 0
    assert "would run 2 points" in capsys.readouterr().out


def test_lists_and_ranges_are_multiplied_in_order_with_the_last_moving_fastest():
    assert grid.points(["K=0,3", "seed=0:3"]) == [{"K": K, "seed": seed} for K in (0, 3) for seed in (0, 1, 2)]
    assert [p["n"] for p in grid.points(["n=0:10:4,99"])] == [0, 4, 8, 99]
    assert [p["n"] for p in grid.points(["n=3:0:-1"])] == [3, 2, 1]


def test_zip_pairs_lists_and_repeats_single_values():
    assert grid.points(["K=1,3", "eta=1e-2,1e-3", "n=8"], zipped=True) == [
        {"K": 1, "eta": 1e-2, "n": 8},
        {"K": 3, "eta": 1e-3, "n": 8},
    ]
    with pytest.raises(ValueError, match="K has 2 values, another parameter has 3"):
        grid.points(["K=1,3", "eta=1,2,3"], zipped=True)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans())
def test_every_number_is_read_as_python_writes_it(value):
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    (point,) = grid.points([f"x={text}"])
    assert point["x"] == value
    assert type(point["x"]) is type(value)


def test_texts_stay_texts_also_those_that_old_yaml_reads_as_times_or_octals():
    (point,) = grid.points(['x=[1:30, 010, "3", 2020-01-01, a b]'])
    assert point["x"] == ["1:30", "010", "3", "2020-01-01", "a b"]


def test_files_hold_a_grid_or_points(tmp_path):
    (tmp_path / "grid.yaml").write_text("K: [1, 3]\neta: 1e-3\nseed: 0:2\n")
    (tmp_path / "points.yaml").write_text("- {K: 1, eta: 1e-2}\n- {K: 3}\n")
    (tmp_path / "points.csv").write_text("K, reduction\n1, sum\n3,\n")
    assert grid.points([], [tmp_path / "grid.yaml"]) == [
        {"K": K, "eta": 1e-3, "seed": seed} for K in (1, 3) for seed in (0, 1)
    ]
    assert grid.points([], [tmp_path / "points.csv"]) == [{"K": 1, "reduction": "sum"}, {"K": 3}]
    rows = [{"K": 1, "eta": 1e-2}, {"K": 3}]
    assert grid.points(["seed=0,1"], [tmp_path / "points.yaml"]) == [r | {"seed": s} for r in rows for s in (0, 1)]
    with pytest.raises(ValueError, match="K is given twice"):
        grid.points(["K=1"], [tmp_path / "points.yaml"])


@pytest.mark.parametrize("text", ["K", "K=", "K=5:5", "K=[1"])
def test_what_is_no_grid_is_refused(text):
    with pytest.raises(ValueError, match=r"expected name=values|holds no value|not readable as YAML"):
        grid.points([text])


def test_a_misspelt_parameter_is_refused_with_the_notebook_s_parameters(tmp_path):
    notebook = Notebook.read(tiny.write(tmp_path))
    with pytest.raises(ValueError, match=r"etta: there is no such parameter \(did you mean eta\?\)") as error:
        notebook.conform({"etta": 1.0})
    assert all(line in str(error.value) for line in ("whole number  default 1", "default 0.001", "default 'plain'"))


def test_values_take_the_type_of_the_notebook_s_own_or_are_refused(tmp_path):
    notebook = Notebook.read(tiny.write(tmp_path))
    eta = notebook.conform({"eta": 1})["eta"]
    assert (eta, type(eta)) == (1.0, float)
    for wrong in ({"a": 1.5}, {"a": "one"}, {"a": True}, {"eta": "small"}, {"mode": 3}):
        with pytest.raises(ValueError, match=r"should be a valid (integer|number|string)"):
            notebook.conform(wrong)


def test_a_notebook_s_own_check_is_made_before_anything_runs():
    notebook = Notebook.read(SPINNING_LINES)
    assert notebook.conform({"K": 0, "reduction": "mean"}) == {"K": 0, "reduction": "mean"}
    for wrong in ({"K": -1}, {"reduction": "median"}):
        with pytest.raises(ValueError, match="allowed are") as error:
            notebook.conform(wrong)
        assert "synthetic gradient steps" in str(error.value)


def test_a_notebook_without_a_parameters_cell_cannot_be_swept(tmp_path):
    with pytest.raises(ValueError, match="has no parameters: tag the cell"):
        Notebook.read(tiny.write(tmp_path, "b = 2", parameters="# nothing"))
    with pytest.raises(ValueError, match="there is no notebook"):
        Notebook.read(tmp_path / "other.ipynb")


@pytest.fixture
def folder(tmp_path):
    """A sweep over K, eta and seed of which one point failed."""
    for K, eta, seed in itertools.product((0, 10, 9), (1e-1, 1e-3), (0, 1)):
        failed = (K, eta, seed) == (0, 1e-1, 1)
        Result(
            point=f"K={K}_eta={eta}_seed={seed}",
            notebook="tiny",
            parameters={"K": K, "eta": eta, "seed": seed, "widths": [8, 8], "data": "glyphs"},
            error="in cell 3: KeyError" if failed else None,
            seconds=1.5,
            metrics={} if failed else {"few_shot.last/test": K + seed, "few_shot.K": K, "pretrain.test": 1.0},
        ).write(tmp_path / "sweep" / f"K={K}_eta={eta}_seed={seed}.ipynb", NOTEBOOK)
    return tmp_path / "sweep"


def record(name: str, params: dict, **values: object) -> SimpleNamespace:
    return SimpleNamespace(id=name, params=params, metrics=values)


def test_metrics_are_named_by_what_tells_their_runs_apart():
    one, two = (
        record("few_shot-0", {"K": 1, "n": 5}, acc=1.0, curve=[1, 2]),
        record("few_shot-1", {"K": 3, "n": 5}, acc=2.0),
    )
    other = record("pretrain-0", {"n": 5}, acc=3.0, device="cpu")
    assert metrics([one]) == {"acc": 1.0}
    assert metrics([one, other]) == {"few_shot.acc": 1.0, "pretrain.acc": 3.0, "pretrain.device": "cpu"}
    assert metrics([one, two, other])["few_shot[K=3].acc"] == 2.0


def test_the_table_has_a_row_for_each_point_as_csv_and_as_parquet(folder, capsys):
    assert sweep("table", folder) == 0
    assert "12 points" in capsys.readouterr().out
    csv, parquet = pd.read_csv(folder / "table.csv"), pd.read_parquet(folder / "table.parquet")
    for found in (csv, parquet):
        assert len(found) == 12
        assert list(found["point_status"]).count("failed") == 1
        done = found[found["point_status"] == "done"]
        assert (done["few_shot.last/test"] == done["K"] + done["seed"]).all()
        assert set(found["widths"]) == {"[8, 8]"}
    assert parquet["seed"].dtype == "int64"


def test_a_broken_or_foreign_file_is_no_row(folder):
    whole = sorted(folder.glob("*.ipynb"))[0]
    whole.write_text(whole.read_text()[:-20])
    (folder / "other.ipynb").write_text("{}")
    (folder / "another.ipynb").write_text(json.dumps({"metadata": {"sweep": {"point": "x"}}}))
    assert len(read_all(folder)) == 11


def test_a_parameter_that_is_now_a_number_and_now_a_text_can_still_be_written(folder):
    file = sorted(folder.glob("*.ipynb"))[0]
    content = json.loads(file.read_text())
    content["metadata"]["sweep"]["parameters"]["K"] = "auto"
    file.write_text(json.dumps(content))
    table.write(folder)
    assert "auto" in set(pd.read_parquet(folder / "table.parquet")["K"])


def test_a_metric_that_is_called_like_a_parameter_stays_apart(tmp_path):
    Result("a", "tiny", {"n": 3}, None, 1.0, metrics={"n": 7.0}).write(tmp_path / "a.ipynb", NOTEBOOK)
    row = table.collect(tmp_path).iloc[0]
    assert (row["n"], row["n (metric)"]) == (3, 7.0)


def test_the_end_of_a_column_s_name_is_enough_if_it_is_clear(folder):
    found = table.collect(folder)
    assert table.column(found, "last/test") == "few_shot.last/test"
    assert table.column(found, "K") == "K"
    with pytest.raises(ValueError, match="loss is not a column of the table") as error:
        table.column(found, "loss")
    assert "pretrain.test" in str(error.value)


def test_a_plot_shows_a_mean_for_each_value_with_lines_and_facets_in_the_order_of_numbers(folder):
    drawn = table.draw(table.collect(folder), "eta", "last/test", hue="K")
    (axes,) = drawn.axes.flat
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("eta", "few_shot.last/test", "log")
    assert [text.get_text() for text in drawn.legend.get_texts()] == ["0", "9", "10"]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in lines[:3]] == [[0.5, 0.0], [9.5, 9.5], [10.5, 10.5]]
    assert "mean over seed" in drawn.figure.get_supxlabel()
    facets = table.draw(table.collect(folder), "K", "last/test", col="eta", row="seed")
    assert facets.axes.shape == (2, 2)
    assert "eta = 0.001" in facets.axes[0, 0].get_title()
    assert facets.figure.get_supxlabel() == ""
    plt.close("all")


@pytest.mark.thorough
def test_the_command_writes_a_file_and_refuses_what_cannot_be_drawn(folder, tmp_path, capsys):
    command = ["plot", folder, "--x", "K", "--hue", "eta"]
    assert sweep(*command, "--y", "last/test") == 0
    (file,) = (folder / "plots").iterdir()
    assert file.name == "last-test_over_K_hue-eta.png"
    assert file.read_bytes().startswith(b"\x89PNG")
    assert sweep(*command, "--y", "last/test", "--out", tmp_path / "a.pdf") == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert sweep(*command, "--y", "data") == 2
    assert "data is not a number" in capsys.readouterr().err
    assert sweep("plot", tmp_path / "none", "--x", "K", "--y", "a") == 2
