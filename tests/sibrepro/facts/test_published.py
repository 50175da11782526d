"""Published facts: read as they were written, damage is named, and what is recomputed is compared."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest
import safetensors
from made_up import computing, record, run
from made_up import published as publish

from sibrepro.facts import Experiment, Inputs, compare, local, published
from sibrepro.facts.experiment import recomputed


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 3
    seed: int = 0


EXPERIMENT = Experiment("made_up", Settings, None, oldest=("n", "seed"), tolerance={"seconds": None, "*": 0.5})
METRICS = {"accuracy": 70.0, "seconds": 3.0}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "project"))
    return tmp_path / "project"


def computes(accuracy, asked=None):
    def compute(p):
        if asked is not None:
            asked.append(p)
        return {"accuracy": accuracy, "seconds": 99.0}, {"curve": np.arange(p.n)}

    return compute


def test_a_fact_is_read_as_it_was_published():
    made = record(EXPERIMENT, Settings(n=4), METRICS, {"curve": np.arange(4.0)}, {"cifar": "abc"})
    publish(EXPERIMENT, made)
    found = EXPERIMENT.published(Settings(n=4))
    assert (found.id, found.params, found.metrics) == (made.id, made.params, made.metrics)
    assert found.provenance["data"] == {"cifar": "abc"}
    np.testing.assert_array_equal(found.arrays["curve"], np.arange(4.0))
    assert EXPERIMENT.published(Settings(n=5)) is None


def test_pandas_opens_the_facts(project):
    publish(EXPERIMENT, *(record(EXPERIMENT, Settings(seed=seed), METRICS) for seed in range(3)))
    table = pd.read_json(project / "results" / "facts" / "made_up.jsonl", lines=True)
    assert len(table) == 3
    assert table["id"].is_monotonic_increasing
    assert [metrics["accuracy"] for metrics in table["metrics"]] == [70.0] * 3


def test_adding_a_run_keeps_the_lines_of_the_others(project):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(seed=0), METRICS, {"curve": np.ones(2)}))
    before = published.lines_file("made_up").read_text().splitlines()
    publish(EXPERIMENT, record(EXPERIMENT, Settings(seed=1), METRICS, {"curve": np.ones(3)}))
    after = published.lines_file("made_up").read_text().splitlines()
    assert len(after) == 2
    assert set(before) < set(after)
    np.testing.assert_array_equal(EXPERIMENT.published(Settings(seed=0)).arrays["curve"], np.ones(2))


def test_arrays_that_are_kept_here_are_not_published():
    keeps = dataclasses.replace(EXPERIMENT, kept_here=("last/",))
    arrays = {"best/curve": np.ones(2), "last/curve": np.ones(2), "lasting": np.ones(1)}
    publish(keeps, record(EXPERIMENT, Settings(seed=0), METRICS, arrays))
    assert set(EXPERIMENT.published(Settings(seed=0)).arrays) == {"best/curve", "lasting"}


def test_equal_arrays_are_stored_once_and_read_as_they_were():
    kinds = {
        "labels": np.arange(500),
        "bytes": np.arange(500, dtype=np.uint8),
        "zero": np.zeros(2),
        "minus": -np.zeros(2),
    }
    publish(EXPERIMENT, *(record(EXPERIMENT, Settings(seed=seed), METRICS, dict(kinds)) for seed in range(3)))
    with safetensors.safe_open(published.arrays_file("made_up"), "np") as file:
        assert len(file.keys()) == len(kinds)
    for seed in range(3):
        found = EXPERIMENT.published(Settings(seed=seed)).arrays
        assert {name: (array.dtype, array.tobytes()) for name, array in found.items()} == {
            name: (array.dtype, array.tobytes()) for name, array in kinds.items()
        }


def test_an_array_that_stands_for_one_that_is_missing_is_an_error():
    publish(EXPERIMENT, *(record(EXPERIMENT, Settings(seed=seed), METRICS, {"a": np.arange(3)}) for seed in (0, 1)))
    arrays = published.arrays_file("made_up")
    first = min(EXPERIMENT.id(Settings(seed=seed)) for seed in (0, 1))
    arrays.write_bytes(arrays.read_bytes().replace(f'"{first}/a":'.encode(), f'"{first}/b":'.encode()))
    published._read.cache_clear()
    with pytest.raises(ValueError, match=r"made_up.safetensors is damaged"):
        published.find("made_up")


def test_a_plan_takes_what_it_names_and_nothing_else():
    publish(EXPERIMENT, *(record(EXPERIMENT, Settings(seed=seed), METRICS) for seed in range(4)))
    found = EXPERIMENT.facts([Settings(seed=2), Settings(seed=9), Settings(seed=0)])
    assert [each.params["seed"] for each in found] == [2, 0]


@pytest.mark.parametrize("where", ["number", "text", "array", "line"])
def test_a_damaged_fact_is_an_error_that_names_the_file_and_never_a_missing_run(where):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS, {"curve": np.arange(100.0)}))
    lines, arrays = published.lines_file("made_up"), published.arrays_file("made_up")
    if where == "array":
        content = bytearray(arrays.read_bytes())
        content[-3] ^= 1  # one bit
        arrays.write_bytes(content)
        lines.touch()
    else:
        change = {"number": ("70.0", "71.0"), "text": ('"metrics"', '"metricz"'), "line": ("}", "")}[where]
        lines.write_text(lines.read_text().replace(*change))
    published._read.cache_clear()
    with pytest.raises(ValueError, match=r"made_up.jsonl, line 1 is damaged"):
        EXPERIMENT.published(Settings())


def test_a_published_run_is_not_computed_unless_asked_for(monkeypatch):
    asked = []
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS))
    experiment, inputs = computing(EXPERIMENT, computes(70.1, asked)), Inputs({}, dict)
    assert experiment.run(Settings()).metrics == METRICS
    assert asked == []
    assert experiment.is_done(Settings(), inputs)
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    assert not experiment.is_done(Settings(), inputs)
    experiment.run(Settings())
    experiment.run(Settings())
    assert len(asked) == 1
    assert experiment.is_done(Settings(), inputs)


def test_where_the_two_agree_the_published_run_is_what_is_drawn(monkeypatch, capfd):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS))
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    assert run(EXPERIMENT, Settings(), computes(70.4)).metrics["accuracy"] == 70.0
    assert "agrees with the published run" in capfd.readouterr().err
    (verdict,) = [v for v in recomputed() if v.id == EXPERIMENT.id(Settings())]
    assert verdict.agrees
    assert verdict.deviation == pytest.approx(0.8)


def test_a_disagreement_is_loud_and_the_run_of_this_machine_is_drawn(monkeypatch, capfd):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS))
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    assert run(EXPERIMENT, Settings(), computes(70.6)).metrics["accuracy"] == 70.6
    said = capfd.readouterr().err
    assert "DISAGREES" in said
    assert "accuracy 70 -> 70.6" in said
    assert "published with commit 00000000" in said
    assert "computed here with commit" in said


def test_a_run_of_other_data_is_another_run(monkeypatch):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS, data={"cifar": "abc"}))
    asked = []
    assert run(EXPERIMENT, Settings(), computes(50.0, asked), data={"cifar": "other"}).metrics["accuracy"] == 50.0
    assert len(asked) == 1


def test_a_fact_of_an_older_version_is_stale_and_computed_again():
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS))
    newer = dataclasses.replace(EXPERIMENT, version=2)
    assert newer.is_stale(newer.published(Settings()))
    assert run(newer, Settings(), computes(80.0)).metrics["accuracy"] == 80.0


@pytest.mark.parametrize(
    ("name", "here", "agrees"),
    [("accuracy", 70.5, True), ("accuracy", 70.51, False), ("seconds", 1e9, True), ("new", 1.0, False)],
)
def test_each_metric_has_a_stated_tolerance(name, here, agrees):
    ours = record(EXPERIMENT, Settings(), METRICS | {name: here})
    assert compare.compare(record(EXPERIMENT, Settings(), METRICS), ours, EXPERIMENT.tolerance).agrees == agrees


def test_without_a_statement_numbers_have_to_be_equal_to_rounding():
    pair = [record(EXPERIMENT, Settings(), {"x": x}) for x in (1000.0, 1000.0005)]
    assert compare.compare(*pair, {}).agrees
    assert not compare.compare(pair[0], record(EXPERIMENT, Settings(), {"x": 1000.1}), {}).agrees


def test_texts_and_options_have_to_be_equal():
    pair = [record(EXPERIMENT, Settings(), {"options": {"k": k}}) for k in (1, 2)]
    assert not compare.compare(*pair, {"*": 0.5}).agrees
    assert compare.compare(pair[0], pair[0], {"*": 0.5}).agrees


def test_what_diverged_can_be_published(project):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS | {"accuracy": math.nan}))
    assert math.isnan(EXPERIMENT.published(Settings()).metrics["accuracy"])
    assert "NaN" not in published.lines_file(EXPERIMENT.name).read_text()


@pytest.mark.parametrize(("theirs", "ours"), [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_what_diverged_there_has_to_diverge_here(theirs, ours):
    pair = [record(EXPERIMENT, Settings(), {"x": x}) for x in (theirs, ours)]
    assert compare.compare(*pair, {"*": 1e9}).agrees == (math.isnan(theirs) and math.isnan(ours))


def test_nothing_of_a_run_here_is_written_among_the_published(project, monkeypatch):
    publish(EXPERIMENT, record(EXPERIMENT, Settings(), METRICS))
    before = {file: file.read_bytes() for file in project.rglob("*") if file.is_file()}
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    run(EXPERIMENT, Settings(), computes(99.0))
    run(EXPERIMENT, Settings(n=8), computes(99.0))
    assert {file: file.read_bytes() for file in project.rglob("*") if file.is_file()} == before
    assert (local.folder_of(EXPERIMENT.id(Settings(n=8))) / "done").is_file()


def test_json_lines_are_one_a_run_and_sorted(project):
    publish(EXPERIMENT, *(record(EXPERIMENT, Settings(seed=seed), METRICS) for seed in (5, 1)))
    ids = [json.loads(line)["id"] for line in published.lines_file("made_up").read_text().splitlines()]
    assert ids == sorted(ids)
