"""Notebook 00's task, steps and picture."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F

from sibrepro.studies.ten_minutes import one_task as ten_minutes
from sibrepro.studies.ten_minutes.one_task import TenMinutes


def test_the_steps_are_those_of_the_fast_path():
    p = TenMinutes(task=3, K=4, shots=5)
    task = ten_minutes.tasks(p, p.task, 1)[0]
    sib = ten_minutes.published(5).changed(steps=4, eta=p.eta)
    fast = sib.trajectory(task.support[None], task.y_l[None], task.x[None])[:, 0]
    steps = ten_minutes.steps_of(p, task)
    assert torch.allclose(torch.stack([step.theta for step in steps]), fast, atol=1e-4)


def test_the_true_gradient_is_autograds():
    y_hat, y = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.arange(7) % 5
    (expected,) = torch.autograd.grad(F.cross_entropy(y_hat, y, reduction="sum"), y_hat)
    assert torch.allclose(ten_minutes.stand_in("true gradient", ten_minutes.published(1), y)(y_hat), expected)


def test_only_the_true_gradient_looks_at_the_answers():
    p = TenMinutes(K=2)
    task = ten_minutes.tasks(p, 0, 1)[0]
    other = task._replace(y=task.y.flip(0))
    for xi, same in {"trained": True, "untrained": True, "true gradient": False}.items():
        first, second = (ten_minutes.steps_of(replace(p, xi=xi), t)[-1].theta for t in (task, other))
        assert torch.equal(first, second) == same


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_queries_are_spread_as_asked(alpha):
    task = ten_minutes.tasks(TenMinutes(queries=8, alpha=alpha), 5, 1)[0]
    counts = torch.bincount(task.y, minlength=5)
    assert counts.sum() == 40
    assert (counts == 8).all() == (alpha == 0)


def test_sliders_only_where_somebody_can_move_them(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    plt.close("all")
    ten_minutes.play(TenMinutes(K=1, queries=2))
    (figure,) = map(plt.figure, plt.get_fignums())
    assert len(figure.axes) == 2
    plt.close(figure)
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    assert ten_minutes.live()


def test_along_the_steps_is_the_mean_of_single_tasks():
    p = TenMinutes(K=2, queries=3)
    table = ten_minutes.along_the_steps(p, count=3)
    assert list(table.index) == ["untrained ξ", "trained ξ", "true gradient"]
    single = [ten_minutes.accuracies(ten_minutes.steps_of(p, task), task.y) for task in ten_minutes.tasks(p, 100, 3)]
    assert table.loc["trained ξ"].tolist() == pytest.approx(torch.tensor(single).mean(0).tolist())
    assert table["θ^0"].nunique() == 1


def test_more_classes_are_harder_for_the_any_way_sib():
    table = ten_minutes.other_numbers_of_classes((2, 10), count=4)
    assert list(table.index) == ["2 classes", "10 classes"]
    assert (table.loc["2 classes"] > table.loc["10 classes"]).all()
    assert ((table > 0) & (table <= 100)).all(axis=None)
