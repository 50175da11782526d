"""Ids do not move."""

from __future__ import annotations

import dataclasses

import pytest

from sibrepro.facts import Experiment, published
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.facts.record import RENAMED, as_dict, identity, run_id, todays_name
from sibrepro.study import studies

assert studies(), "which declare the experiments"


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 3
    eta: float = 0.1


@dataclasses.dataclass(frozen=True)
class MoreSettings(Settings):
    colour: str = "blue"


def test_the_same_parameters_give_the_same_name_in_any_order():
    assert run_id("a", {"x": 1, "y": 2.0}) == run_id("a", {"y": 2.0, "x": 1})
    named = [("a", {"x": 1}), ("b", {"x": 1}), ("a", {"x": 2}), ("a", {"x": 1, "y": 1})]
    assert len({run_id(*each) for each in named}) == 4


def test_a_field_that_is_added_moves_no_id_and_counts_where_it_is_not_default():
    oldest = ("n", "eta")
    before = run_id("a", Settings(n=4), oldest)
    assert run_id("a", MoreSettings(n=4), oldest) == before
    assert run_id("a", MoreSettings(n=4, colour="red"), oldest) != before


def test_oldest_fields_count_whatever_their_value_and_later_ones_only_if_not_default():
    assert identity(MoreSettings(), ("n",)) == {"n": 3}
    assert identity(MoreSettings(colour="red", eta=0.2), ("n",)) == {"n": 3, "eta": 0.2, "colour": "red"}


@pytest.mark.parametrize("name", published.experiments())
def test_every_published_id_is_that_of_its_parameters_and_every_fact_loads(name):
    experiment = EXPERIMENTS[name]
    for record in published.find(name).values():
        assert experiment.id(experiment.settings_of(record)) == record.id


@pytest.mark.parametrize("name", published.experiments())
def test_an_added_option_renames_no_published_run(name):
    experiment = EXPERIMENTS[name]
    wider = dataclasses.make_dataclass(
        "Wider", [("later", str, "default")], bases=(experiment.settings,), frozen=True, kw_only=True
    )
    for record in published.find(name).values():
        params = as_dict(experiment.settings_of(record))  # fields that came later with their defaults
        assert experiment.id(wider(**params)) == record.id


def test_there_are_at_least_the_first_564_facts():
    assert sum(len(published.find(name)) for name in published.experiments()) >= 564


def test_a_field_of_a_newer_version_is_a_clear_error():
    experiment = Experiment("newer", Settings, None)
    record = dataclasses.make_dataclass("R", ["id", "params"])("newer-0", {"n": 1, "shape": "round"})
    with pytest.raises(ValueError, match=r"newer-0 has the parameters shape.*update"):
        experiment.settings_of(record)


def test_an_id_from_before_a_renaming_finds_its_run():
    for old, new in RENAMED.items():
        assert not published.find(old)
        for name in published.find(new):
            assert todays_name(name.replace(new, old, 1)) == name
    assert todays_name("realism") == "class_imbalance"
    assert todays_name("few_shot-12bdd1804dd7") == "few_shot-12bdd1804dd7"
    assert todays_name("73.6") == "73.6"
