"""Each figure of notebook 03 is drawn from records, with its axes labelled and the right numbers in it."""

from __future__ import annotations

import few_shot_records
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from few_shot_records import sib
from matplotlib import pyplot as plt
from tiny_images import few_shot_set

from sibcore import datasets
from sibrepro import plots
from sibrepro.statistics import Score
from sibrepro.studies.few_shot import figures
from sibrepro.studies.few_shot.plan import FewShotRuns

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def by_setting():
    return {(shots, K): [sib(60 + K, shots=shots, K=K, seed=s) for s in (0, 1)] for shots in (1, 5) for K in (0, 3)}


@pytest.fixture(scope="module")
def diagnosed():
    return few_shot_records.diagnosed(K=3)


def labelled(figure) -> bool:
    return all(axis.get_xlabel() or axis.get_ylabel() or axis.get_title() for axis in figure.axes)


def test_a_task_shows_support_and_queries_of_each_class(monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda name: few_shot_set(images=16))
    figure = figures.one_episode()
    assert len(figure.axes) == 5 * 7
    assert all(axis.images for axis in figure.axes)


def test_training_curves_have_a_line_for_each_K(by_setting):
    figure = figures.training_curves(FewShotRuns(by_setting, {}, {}, {}, {}))
    assert [[line.get_label() for line in axis.lines] for axis in figure.axes] == [["K = 0", "K = 3"]] * 4
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1000, 1.0], [2000, 0.9]]
    assert figure.axes[2].lines[0].get_xydata().tolist() == [[1000, 50], [2000, 60]]
    assert labelled(figure)


def test_gains_by_network_are_ours_and_the_papers():
    rows = [
        ("ours", "cifar-fs", "conv4-64", 1, 60.0, 9.0, 0.2),
        ("paper", "mini-imagenet", "wrn-28-10", 5, 77.5, 1.4, None),
    ]
    columns = ["whose", "dataset", "backbone", "shots", "start", "gain", "ci95"]
    one, five = figures.gain_by_network(pd.DataFrame(rows, columns=columns).astype({"ci95": float})).axes
    assert [axis.get_title() for axis in (one, five)] == ["1-shot", "5-shot"]
    assert five.get_legend_handles_labels()[1] == ["CIFAR-FS, ours", "mini-ImageNet, paper"]
    for axis, name, point in ((one, "conv4-64", (60.0, 9.0)), (five, "wrn-28-10", (77.5, 1.4))):
        assert [text.get_text() for text in axis.texts] == [name]
        assert axis.texts[0].xy == point
        assert axis.containers[0].lines[0].get_xydata().tolist() == [[*point]]
    assert labelled(one.figure)


def test_names_of_neighbours_do_not_cover_each_other_or_their_points():
    rows = [("ours", "cifar-fs", name, 1, 60 + 0.1 * i, 9.0, 0.2) for i, name in enumerate(["conv4-64", "wrn-16-2"])]
    columns = ["whose", "dataset", "backbone", "shots", "start", "gain", "ci95"]
    figure = figures.gain_by_network(pd.DataFrame(rows, columns=columns))
    (axis,) = figure.axes
    first, second = (text.get_window_extent() for text in axis.texts)
    assert not first.overlaps(second)
    places = axis.transData.transform([text.xy for text in axis.texts])
    assert not any(box.contains(*place) for box in (first, second) for place in places)


def test_accuracy_against_K_has_our_points_and_the_papers(by_setting):
    here = {key: records[:1] for key, records in by_setting.items()}
    study = FewShotRuns(by_setting, {}, {}, {}, {})
    figure = figures.accuracy_against_K(study, here, "cifar-fs", "conv4-64", 1500)
    ours = next(line for line in figure.axes[0].lines if line.get_label() == "ours")
    assert list(ours.get_xdata()) == [0, 3]
    means = [np.mean([r.metrics["best/1shot"] for r in by_setting[1, K]]) for K in (0, 3)]
    assert ours.get_ydata() == pytest.approx(means)
    heights = [y for container in figure.axes[0].containers for y in container.lines[0].get_ydata()]
    assert {68.7, 59.2} <= set(heights)
    assert {here[1, K][0].metrics["best/1shot"] for K in (0, 3)} <= set(heights)


def test_gain_by_episode(by_setting):
    figure = figures.gain_by_episode(FewShotRuns(by_setting, {}, {}, {}, {}))
    first, second = (by_setting[1, K][0].arrays["best/1shot"].astype(int) for K in (0, 3))
    share = f"{100 * (second < first).mean():.0f} % of {len(first):,} episodes lose"
    assert figure.axes[0].get_title().endswith(share)
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == pytest.approx(100)
    seeds = [by_setting[5, 3][s].metrics["best/5shot"] - by_setting[5, 0][s].metrics["best/5shot"] for s in (0, 1)]
    assert figure.axes[1].lines[1].get_xdata()[0] == pytest.approx(np.mean(seeds))


def test_reliability_before_and_after_the_steps(diagnosed):
    figure = figures.reliability(diagnosed, 3)
    for k, axis in zip((0, 3), figure.axes, strict=False):
        error = 100 * diagnosed.metrics[f"calibration_error/{k}"]
        assert axis.get_title().endswith(f": calibration error {error:.1f} points")
        there = diagnosed.arrays["weight"][k] > 0
        assert axis.lines[1].get_ydata() == pytest.approx(diagnosed.arrays["correct"][k][there])


def test_a_task_in_the_plane_has_an_arrow_for_each_class(diagnosed):
    figure = figures.task_in_the_plane(diagnosed)
    (axis,) = figure.axes
    assert len(axis.lines) == 5
    assert axis.lines[2].get_xydata() == pytest.approx(diagnosed.arrays["view/theta"][:, 2])
    assert labelled(figure)


def test_methods_are_ordered_by_accuracy_and_inductive_ones_are_hollow():
    rows = [("SIB, K = 3", "transductive", 1, 71.0, 0.4), ("Ridge regression (R2-D2)", "inductive", 1, 60.0, 0.4)]
    rows.append(("PT-MAP", "transductive", 1, 74.0, 1.0))
    (axis,) = figures.methods(pd.DataFrame(rows, columns=["method", "kind", "shots", "mean", "ci95"])).axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["Ridge regression (R2-D2)", "SIB, K = 3", "PT-MAP"], "worst at the bottom"
    points = [container.lines[0] for container in axis.containers]
    assert [point.get_xdata()[0] for point in points] == [60, 71, 74]
    assert [point.get_markerfacecolor() == "white" for point in points] == [True, False, False]
    assert [point.get_color() for point in points[1:]] == [plots.colour("sib"), plots.colour("pt-map")]


def test_balance_has_two_points_for_each_method():
    columns = ["method", "sib", "balanced", "balanced_ci95", "unbalanced", "unbalanced_ci95"]
    rows = [("SIB, K = 3", True, 70, 1, 60, 1), ("PT-MAP", False, 60, 1, 58, 1)]
    figure = figures.unbalanced_queries(pd.DataFrame(rows, columns=columns))
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["PT-MAP", "SIB, K = 3"]
    points = [container.lines[0] for container in axis.containers]
    assert [point.get_xdata()[0] for point in points] == [60, 58, 70, 60]
    assert [point.get_markerfacecolor() == "white" for point in points] == [True, False, True, False]
    assert {point.get_color() for point in points[2:]} == {plots.colour("sib")}
    assert labelled(figure)


def test_bars_stand_one_above_the_other_with_a_line_at_the_reference():
    (axis,) = figures.bars({"a": Score(60, 1), "b": Score(61, 1)}, "accuracy", reference="a").axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["b", "a"]
    assert [container.lines[0].get_xdata()[0] for container in axis.containers] == [61, 60]
    assert list(axis.lines[-1].get_xdata()) == [60, 60]
