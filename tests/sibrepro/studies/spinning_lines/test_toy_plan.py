"""Which runs of the spinning lines are published."""

from __future__ import annotations

import dataclasses

from sibrepro.facts import Record, publish
from sibrepro.studies.spinning_lines import plan


def made_up(p):
    return Record(plan.SIB.id(p), 1, dataclasses.asdict(p), {"sum/mse": 0.1}, {"data": {}}, {}, None)


def test_planned_runs_are_taken_in_the_order_of_the_plan_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    unplanned = dataclasses.replace(plan.PAPER, sigma=7.0)
    publish.add(plan.SIB, [made_up(p) for p in (unplanned, plan.OTHERS[3], plan.PAPER)])
    assert [r.id for r in plan.published()] == [plan.SIB.id(plan.PAPER), plan.SIB.id(plan.OTHERS[3])]


def test_everything_planned_is_published():
    for experiment, settings in plan.declared().items():
        assert [r.id for r in experiment.facts(settings)] == [experiment.id(p) for p in settings]


def test_one_thing_is_changed_at_a_time():
    paper = dataclasses.replace(plan.PAPER, seeds=4)
    for p in plan.OTHERS:
        changed = [
            field.name for field in dataclasses.fields(p) if getattr(p, field.name) != getattr(paper, field.name)
        ]
        assert len(changed) == 1
