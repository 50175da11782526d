from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from sibrepro.facts.runs import Record

from sibrepro import __main__
from sibrepro.run.sweep import plot, table
from sibrepro.run.sweep.point import Result, metrics, read_results


@pytest.fixture
def folder(tmp_path):
    """A sweep over K, eta and seed of which one point failed."""
    place = tmp_path / "sweep"
    for K in (0, 10, 9):
        for eta in (1e-1, 1e-3):
            for seed in (0, 1):
                failed = (K, eta, seed) == (0, 1e-1, 1)
                Result(
                    point=f"K={K}_eta={eta}_seed={seed}",
                    notebook="tiny",
                    parameters={"K": K, "eta": eta, "seed": seed, "widths": [8, 8], "data": "glyphs"},
                    error="in cell 3: KeyError" if failed else None,
                    seconds=1.5,
                    cell_seconds=1.0,
                    metrics={} if failed else {"few_shot.last/test": K + seed, "few_shot.K": K, "pretrain.test": 1.0},
                ).write(place / f"K={K}_eta={eta}_seed={seed}.json")
    return place


def record(name: str, params: dict, **values: object) -> Record:
    return Record(folder=Path(name), params=params, provenance={}, metrics=values, arrays={})


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
    assert __main__.main(["sweep", "table", str(folder)]) == 0
    assert "12 points" in capsys.readouterr().out
    csv, parquet = pd.read_csv(folder / "table.csv"), pd.read_parquet(folder / "table.parquet")
    for read in (csv, parquet):
        assert len(read) == 12
        assert list(read["point_status"]).count("failed") == 1
        done = read[read["point_status"] == "done"]
        assert (done["few_shot.last/test"] == done["K"] + done["seed"]).all()
        assert set(read["widths"]) == {"[8, 8]"}
    assert parquet["seed"].dtype == "int64"


def test_a_broken_or_foreign_file_is_no_row(folder):
    whole = sorted(folder.glob("*.json"))[0]
    whole.write_text(whole.read_text()[:-20])
    (folder / "other.json").write_text(json.dumps({"point": "x"}))
    (folder / "other.ipynb").write_text("{}")
    assert len(read_results(folder)) == 11


def test_a_parameter_that_is_now_a_number_and_now_a_text_can_still_be_written(folder):
    file = sorted(folder.glob("*.json"))[0]
    content = json.loads(file.read_text())
    content["parameters"]["K"] = "auto"
    file.write_text(json.dumps(content))
    table.write(folder)
    assert "auto" in set(pd.read_parquet(folder / "table.parquet")["K"])


def test_a_metric_that_is_called_like_a_parameter_stays_apart(tmp_path):
    Result("a", "tiny", {"n": 3}, None, 1.0, 1.0, metrics={"n": 7.0}).write(tmp_path / "a.json")
    row = table.collect(tmp_path).iloc[0]
    assert (row["n"], row["n (metric)"]) == (3, 7.0)


def test_the_end_of_a_column_s_name_is_enough_if_it_is_clear(folder):
    rows = table.collect(folder)
    assert table.column(rows, "last/test") == "few_shot.last/test"
    assert table.column(rows, "K") == "K"
    with pytest.raises(ValueError, match="loss is no column of the table") as error:
        table.column(rows, "loss")
    assert "pretrain.test" in str(error.value)


def test_a_plot_shows_a_mean_for_each_value_with_lines_and_facets_in_the_order_of_numbers(folder):
    grid = plot.plot(table.collect(folder), "eta", "last/test", hue="K")
    (axes,) = grid.axes.flat
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("eta", "few_shot.last/test", "log")
    assert [text.get_text() for text in grid.legend.get_texts()] == ["0", "9", "10"]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in lines[:3]] == [[0.5, 0.0], [9.5, 9.5], [10.5, 10.5]]
    assert "mean over seed" in grid.figure.get_supxlabel()
    facets = plot.plot(table.collect(folder), "K", "last/test", col="eta", row="seed")
    assert facets.axes.shape == (2, 2)
    assert "eta = 0.001" in facets.axes[0, 0].get_title()
    assert facets.figure.get_supxlabel() == ""
    plt.close("all")


def test_the_command_writes_a_file_and_refuses_what_cannot_be_drawn(folder, tmp_path, capsys):
    command = ["sweep", "plot", str(folder), "--x", "K", "--hue", "eta"]
    assert __main__.main([*command, "--y", "last/test"]) == 0
    (file,) = (folder / "plots").iterdir()
    assert file.name == "last-test_over_K_hue-eta.png"
    assert file.read_bytes().startswith(b"\x89PNG")
    assert __main__.main([*command, "--y", "last/test", "--out", str(tmp_path / "a.pdf")]) == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert __main__.main([*command, "--y", "data"]) == 2
    assert "data is not a number" in capsys.readouterr().err
    assert __main__.main(["sweep", "plot", str(tmp_path / "none"), "--x", "K", "--y", "a"]) == 2
