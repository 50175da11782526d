"""The table of gains, against means taken by hand."""

from __future__ import annotations

import types

import pytest

from sibrepro.studies.any_way import tables
from sibrepro.studies.any_way.any_way import SET_AWARE


def test_gains_are_means_over_ways_and_shots_by_kind_of_queries(monkeypatch):
    shapes = {"photo/2way/1shot": 1.0, "photo/7way/5shot": 4.0, "photo/7way/5shot/lopsided": -1.0}
    shapes |= {"photo/7way/1shot/2each": 2.0, "photo/7way/5shot/5each": 3.0, "clusters/5way/1shot/unbalanced": 0.5}
    metrics = {f"{test}/gain": gain for test, gain in shapes.items()} | {f"{test}/before": 50.0 for test in shapes}
    other = dict.fromkeys(metrics, 0.0)

    def published(settings):
        return types.SimpleNamespace(metrics=metrics if settings == SET_AWARE else other)

    monkeypatch.setattr(tables, "ANY_WAY", types.SimpleNamespace(published=published))
    found = tables.gains()
    assert found.loc["photo", ("balanced", "set-aware ξ")] == pytest.approx(2.5)
    assert found.loc["photo", ("1 to 5 a class", "set-aware ξ")] == pytest.approx(2.5)
    assert found.loc["photo", ("Dirichlet(0.3)", "set-aware ξ")] == pytest.approx(-1.0)
    assert found.loc["clusters", ("Dirichlet(1)", "set-aware ξ")] == pytest.approx(0.5)
    assert (found.xs("equivariant ξ", axis=1, level="xi").stack(future_stack=True).dropna() == 0).all()
