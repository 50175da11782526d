"""Each figure of notebook 04 is drawn from records, with its axes labelled and the right numbers in it."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from few_shot_records import diagnosed, sib
from matplotlib import pyplot as plt

from sibrepro import paper
from sibrepro.studies.synthetic_gradients import figures
from sibrepro.studies.synthetic_gradients.study import STUDY

pytestmark = pytest.mark.thorough

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def printed():
    """The paper's rows, each number of ours two points above."""
    table = paper.synthetic_gradients().rename(columns={"value": "paper"})
    return table.assign(ours=table["paper"] + 2, episodes=5000)


def test_gain_over_eta_has_every_number_of_the_papers(printed):
    axes = figures.gain_over_eta(printed).axes
    assert len(axes) == 6
    shown = [line.get_xydata() for axis in axes for line in axis.get_lines() if len(line.get_xdata()) == 4]
    assert len(shown) == 6 * 3 * 2, "six panels, three K, the paper's and ours"
    for theirs, ours in zip(shown[::2], shown[1::2], strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-9)  # all are two points above, those of K = 0 too
    titles = [axis.get_title() for axis in axes[:3]]
    assert titles == ["inductive SIB, trained 1-shot", "SIB, trained 1-shot", "SIB, trained 5-shot"]
    three_steps = axes[1].get_lines()[3]  # after zero, and K = 1 twice
    assert three_steps.get_ydata().round(1).tolist() == [-0.3, 9.5, 9.4, 5.8]


def test_along_the_steps_goes_past_the_trained_K():
    by_K = {K: diagnosed(K=K) for K in (1, 3)}
    axes = figures.along_the_steps(by_K).axes
    assert [text.get_text() for text in axes[0].get_legend().texts] == [f"trained with $K={K}$" for K in by_K]
    for axis, (name, scale) in zip(axes, {"accuracy": 100, "loss": 1, "xi_cosine": 1}.items(), strict=True):
        within, past = axis.lines[2:4]
        values = [scale * by_K[3].metrics[f"{name}/{k}"] for k in range(7)]
        assert within.get_xydata().tolist() == [[k, values[k]] for k in range(4)]
        assert past.get_xydata().tolist() == [[k, values[k]] for k in range(3, 7)]
        assert axis.get_title()
        assert axis.get_xlabel()


def test_over_training_has_a_point_for_each_length():
    stages = [diagnosed(K=2, steps=steps) for steps in (100, 1000)]
    cosines, accuracies = figures.over_training(stages).axes
    lines = [line.get_xydata().tolist() for line in cosines.lines[:3]]
    assert lines[1] == [[r.params["steps"], r.metrics["xi_cosine/1"]] for r in stages]
    assert [text.get_text() for text in cosines.texts] == [rf"$\theta^{k}$" for k in range(3)]
    ends = [[line.get_label(), line.get_ydata()[0]] for line in accuracies.lines]
    assert ends == [[rf"with $\theta^{k}$", 100 * stages[0].metrics[f"accuracy/{k}"]] for k in (0, 2)]


def test_two_readings_of_the_learning_rate(printed):
    start, end = ([sib(60 + K, K=K, seed=seed) for seed in (0, 1)] for K in (0, 3))
    found = {("SIB", 1, 0, 1e-3): start, ("SIB", 1, 3, 1e-3): end, ("SIB", 1, 3, 1e-2): end}
    axis = figures.learning_rates(found, {1e-2: start}, printed).axes[0]
    lines = {line.get_label(): line.get_xydata() for line in axis.get_lines()}
    assert lines["paper"][:, 1].round(1).tolist() == [-0.3, 9.5, 9.4, 5.8]
    names = [text.get_text() for text in axis.get_legend().texts]
    assert names == ["paper", "ours, learning rate 0.001", "ours, learning rate $=\\eta$"]
    fixed, equal = (container.lines[0].get_xydata() for container in axis.containers)
    before, after = (np.mean([record.metrics["best/1shot"] for record in seeds]) for seeds in (start, end))
    assert fixed.tolist() == [[eta, pytest.approx(after - before)] for eta in (1e-3, 1e-2)]
    assert equal.tolist() == [[1e-2, 0]]


def test_the_declared_figures_name_the_runs_they_show():
    for name, figure in STUDY.figures.items():
        assert figure.records(), name
        assert len({record.id for record in figure.records()}) == len(figure.records()), name
