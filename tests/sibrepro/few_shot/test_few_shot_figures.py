"""Each figure is drawn from records, with its axes labelled and the right numbers in it."""

from __future__ import annotations

import few_shot_records
import matplotlib as mpl
import pandas as pd
import pytest
import torch
from few_shot_records import sib
from matplotlib import pyplot as plt

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.vision.features import Features
from sibrepro import paper
from sibrepro.few_shot import figures as few_shot_figures
from sibrepro.few_shot import inside as anatomy
from sibrepro.few_shot.rivals import Score
from sibrepro.synthetic_gradients import figures as ablation_figures

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def by_setting():
    return {(shots, K): [sib(60 + K, shots=shots, K=K, seed=s) for s in (0, 1)] for shots in (1, 5) for K in (0, 3)}


@pytest.fixture
def inside():
    labels = torch.arange(8).repeat_interleave(20)
    features = torch.randn(160, 6, generator=torch.Generator().manual_seed(0))
    bank = Features(features + 2 * torch.eye(8, 6)[labels], torch.empty(0), labels, tuple("abcdefgh"), "")
    tasks = EpisodeSampler(labels, 5, 1, 5, seed=0).sample(0, 120)
    return few_shot_records.anatomy(*anatomy.look(SIB(5, 6, 3, 0.05), bank, tasks))


def labelled(figure) -> bool:
    return all(axis.get_xlabel() or axis.get_ylabel() or axis.get_title() for axis in figure.axes)


def test_a_task_shows_support_and_queries_of_each_class(monkeypatch, tmp_path):
    monkeypatch.delenv("SIB_DATA", raising=False)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path))
    figure = few_shot_figures.one_episode()
    assert len(figure.axes) == 5 * 7
    assert all(axis.images for axis in figure.axes)


def test_training_curves_have_a_line_for_each_K(by_setting):
    figure = few_shot_figures.training_curves(by_setting)
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 2, 2]
    assert labelled(figure)


def test_accuracy_against_K_has_our_points_and_the_papers(by_setting):
    figure = few_shot_figures.accuracy_against_K(by_setting, "conv4-64", "cifar-fs")
    ours = next(line for line in figure.axes[0].lines if line.get_label() == "ours")
    assert list(ours.get_xdata()) == [0, 3]
    heights = [y for container in figure.axes[0].containers for y in container.lines[0].get_ydata()]
    assert 68.7 in heights
    assert 59.2 in heights


def test_gain_by_episode(by_setting):
    pairs = {shots: (by_setting[shots, 0], by_setting[shots, 3]) for shots in (1, 5)}
    figure = few_shot_figures.gain_by_episode(pairs, 3)
    assert "of the tasks lose" in figure.axes[0].get_title()


def test_the_inside_of_tasks(inside):
    figure = few_shot_figures.reliability(inside, 3)
    assert "calibration error" in figure.axes[1].get_title()
    assert labelled(few_shot_figures.task_in_the_plane(inside))
    assert labelled(ablation_figures.along_the_steps({"trained with K = 3": inside}))
    assert labelled(ablation_figures.over_training([inside]))


def test_methods_balance_and_bars():
    scores = pd.DataFrame(
        [("SIB, K = 3", True, 1, 71.0, 0.4), ("Ridge", False, 1, 60.0, 0.4)],
        columns=["method", "transductive", "shots", "mean", "ci95"],
    )
    names = [label.get_text() for label in few_shot_figures.methods(scores).axes[0].get_yticklabels()]
    assert names == ["Ridge", "SIB, K = 3"], "worst at the bottom"
    columns = ["method", "balanced", "balanced_ci95", "unbalanced", "unbalanced_ci95"]
    assert labelled(few_shot_figures.balance(pd.DataFrame([("SIB", 70, 1, 60, 1)], columns=columns)))
    figure = few_shot_figures.bars({"a": Score(60, 1), "b": Score(61, 1)}, "accuracy", reference="a")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a"]


def test_heat_maps_show_every_number_of_the_papers():
    table = paper.synthetic_gradients().rename(columns={"value": "paper"}).assign(ours=lambda t: t["paper"] + 1)
    figure = ablation_figures.heat_maps(table)
    assert len(figure.axes) == 18
    assert sum(len(axis.texts) for axis in figure.axes[:6]) == 6 * 12
    assert {text.get_text() for text in figure.axes[12].texts} == {"1.0"}


def test_two_readings_of_the_rate(by_setting):
    start, end = by_setting[1, 0], by_setting[1, 3]
    axis = ablation_figures.tied_or_not(start, {1e-3: end, 1e-2: end}, {1e-2: start}).axes[0]
    lines = {line.get_label(): line.get_xydata() for line in axis.get_lines()}
    assert lines["the paper's table"][:, 1].round(1).tolist() == [-0.3, 9.5, 9.4, 5.8]
    names = [text.get_text() for text in axis.get_legend().texts]
    assert names == ["the paper's table", "ours, outer rate 1e-3", "ours, outer rate = η"]
