"""Each figure of notebook 04 is drawn from records, with its axes labelled and the right numbers in it."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from cells import drawn
from few_shot_records import diagnosed, sib
from matplotlib import pyplot as plt

from sibrepro import paper
from sibrepro.studies.synthetic_gradients import plan
from sibrepro.studies.synthetic_gradients.plan import SyntheticGradientsNotebook

pytestmark = pytest.mark.thorough

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_heat_maps_show_every_number_of_the_papers():
    table = paper.synthetic_gradients().rename(columns={"value": "paper"}).assign(ours=lambda t: t["paper"] + 1)
    axes = drawn("04_heat_maps", printed=table, records=[]).axes
    assert len(axes) == 18 + 1  # and one scale of colours for all
    assert sum(len(axis.texts) for axis in axes[:6]) == 6 * 12
    printed, ours = ([text.get_text() for text in axis.texts] for axis in (axes[2], axes[8]))
    assert [f"{float(text) + 1:.1f}" for text in printed] == ours
    assert {abs(float(text.get_text())) for text in axes[14].texts} == {0.0}  # equal gains


def test_along_the_steps_goes_past_the_trained_K(monkeypatch):
    diagnostics = {K: diagnosed(K=K) for K in (1, 3)}
    monkeypatch.setattr(plan, "diagnostics", lambda *_: diagnostics)
    axes = drawn("04_along_the_steps", p=SyntheticGradientsNotebook()).axes
    assert [text.get_text() for text in axes[0].get_legend().texts] == [f"trained with K = {K}" for K in diagnostics]
    for axis, name in zip(axes, ("accuracy", "loss", "xi_cosine"), strict=True):
        within, past = axis.lines[2:4]
        values = [diagnostics[3].metrics[f"{name}/{k}"] for k in range(7)]
        assert within.get_xydata().tolist() == [[k, values[k]] for k in range(4)]
        assert past.get_xydata().tolist() == [[k, values[k]] for k in range(3, 7)]
        assert axis.get_title()
        assert axis.get_xlabel()


def test_over_training_has_a_point_for_each_length(monkeypatch):
    stages = [diagnosed(K=2, steps=steps) for steps in (100, 1000)]
    monkeypatch.setattr(plan, "stages", lambda *_: stages)
    names = {"p": SyntheticGradientsNotebook(), "together": lambda settings: [], "titles": ("", "", "cosine")}
    cosines, accuracies = drawn("04_over_training", **names).axes
    assert len(cosines.lines) == 3
    assert cosines.lines[1].get_xydata().tolist() == [[s, stages[0].metrics["xi_cosine/1"]] for s in (100, 1000)]
    ends = [[line.get_label(), line.get_ydata()[0]] for line in accuracies.lines]
    assert ends == [[rf"$\theta^{k}$", 100 * stages[0].metrics[f"accuracy/{k}"]] for k in (0, 2)]


def test_two_readings_of_the_rate(monkeypatch):
    start, end = ([sib(60 + K, K=K, seed=seed) for seed in (0, 1)] for K in (0, 3))
    monkeypatch.setattr(plan, "tied", lambda *_: {1e-2: start})
    found = {("SIB", 1, 0, 1e-3): start, ("SIB", 1, 3, 1e-3): end, ("SIB", 1, 3, 1e-2): end}
    printed = paper.synthetic_gradients().rename(columns={"value": "paper"})
    axis = drawn("04_tied_or_not", p=SyntheticGradientsNotebook(), found=found, printed=printed).axes[0]
    lines = {line.get_label(): line.get_xydata() for line in axis.get_lines()}
    assert lines["the paper's table"][:, 1].round(1).tolist() == [-0.3, 9.5, 9.4, 5.8]
    names = [text.get_text() for text in axis.get_legend().texts]
    assert names == ["the paper's table", "ours, outer rate 1e-3", "ours, outer rate = η"]
    own, tied = (container.lines[0].get_xydata() for container in axis.containers)
    before, after = (np.mean([record.metrics["best/1shot"] for record in seeds]) for seeds in (start, end))
    assert own.tolist() == [[eta, pytest.approx(after - before)] for eta in (1e-3, 1e-2)]
    assert tied.tolist() == [[1e-2, 0]]
