from __future__ import annotations

import pytest
import tiny_notebooks
from hypothesis import given
from hypothesis import strategies as st

from sibrepro import paths
from sibrepro.run.sweep import grid

SPINNING_LINES = paths.PACKAGE.parent / "notebooks" / "02_spinning_lines.ipynb"


def test_lists_and_ranges_are_multiplied_in_order_with_the_last_moving_fastest():
    assert grid.points(["K=0,3", "seed=0:3"]) == [{"K": K, "seed": seed} for K in (0, 3) for seed in (0, 1, 2)]
    assert [p["n"] for p in grid.points(["n=0:10:4,99"])] == [0, 4, 8, 99]
    assert [p["n"] for p in grid.points(["n=3:0:-1"])] == [3, 2, 1]


def test_zip_pairs_lists_and_repeats_single_values():
    assert grid.points(["K=1,3", "eta=1e-2,1e-3", "n=8"], zipped=True) == [
        {"K": 1, "eta": 1e-2, "n": 8},
        {"K": 3, "eta": 1e-3, "n": 8},
    ]
    with pytest.raises(ValueError, match="K has 2 values and another list 3"):
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
    notebook = grid.Notebook.read(tiny_notebooks.write(tmp_path))
    with pytest.raises(ValueError, match=r"no parameter etta \(did you mean eta\?\)") as error:
        notebook.conform({"etta": 1.0})
    assert all(line in str(error.value) for line in ("a = 1", "eta = 0.001", "mode = 'plain'"))


def test_values_take_the_type_of_the_notebook_s_own_or_are_refused(tmp_path):
    notebook = grid.Notebook.read(tiny_notebooks.write(tmp_path))
    eta = notebook.conform({"eta": 1})["eta"]
    assert (eta, type(eta)) == (1.0, float)
    for wrong in ({"a": 1.5}, {"a": "one"}, {"a": True}, {"eta": "small"}, {"mode": 3}):
        with pytest.raises(ValueError, match=r"expected .* as in the notebook's"):
            notebook.conform(wrong)


def test_a_notebook_s_own_check_is_made_before_anything_runs():
    notebook = grid.Notebook.read(SPINNING_LINES)
    assert notebook.conform({"K": 0, "reduction": "mean"}) == {"K": 0, "reduction": "mean"}
    for wrong in ({"K": -1}, {"reduction": "median"}):
        with pytest.raises(ValueError, match="allowed are") as error:
            notebook.conform(wrong)
        assert "synthetic gradient steps" in str(error.value)


def test_a_notebook_without_a_parameters_cell_cannot_be_swept(tmp_path):
    with pytest.raises(ValueError, match="has no parameters: tag the cell"):
        grid.Notebook.read(tiny_notebooks.write(tmp_path, "b = 2", parameters="# nothing"))
    with pytest.raises(ValueError, match="there is no notebook"):
        grid.Notebook.read(tmp_path / "other.ipynb")
