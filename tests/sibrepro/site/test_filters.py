"""Filters by CSS alone: their rules against a list of entries filtered by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from sibrepro.site import filters


def made_up(seed, count=12):
    """Entries with three random values each, and their filters."""
    random_ = random.Random(seed)
    values = {"colour": "red green blue".split(), "size": ["1", "2"], "shape": "disc ring line dot".split()}
    entries = [{name: random_.choice(several) for name, several in values.items()} for _ in range(count)]
    return entries, [filters.of(name, name, [entry[name] for entry in entries]) for name in values]


@pytest.mark.parametrize("seed", range(20))
def test_the_smallest_combinations_without_an_entry_are_found_and_no_others(seed):
    entries, offered = made_up(seed)
    found = filters.impossible(offered, entries)
    names = [filter.name for filter in offered]
    for values in itertools.product(*(["", *filter.values] for filter in offered)):
        chosen = {name: value for name, value in zip(names, values, strict=True) if value}
        left = [entry for entry in entries if chosen.items() <= entry.items()]
        assert bool(left) is not any(part.items() <= chosen.items() for part in found), chosen
    for one, other in itertools.permutations(found, 2):
        assert not one.items() <= other.items()


def test_buttons_follow_the_given_order_and_count_their_entries():
    filter = filters.of("v", "verdict", ["b", "a", "b", "c"], order=["a", "b", "never"])
    assert filter.values == ("a", "b", "c")
    assert filter.counts == {"a": 1, "b": 2, "c": 1}
    assert [filter.button(value) for value in filter.values] == ["v-0", "v-1", "v-2"]


def test_each_button_hides_what_has_another_value():
    entries = [{"v": "a"}, {"v": "b"}]
    rules = filters.rules([filters.of("v", "", ["a", "b"])], entries)
    assert '.explorer:has(#v-0:checked) [data-v]:not([data-v~="v-0"])' in rules
    assert ".none" not in rules, "each value has an entry"
    assert filters.rules([], []) == ""


def test_a_heading_is_hidden_where_nothing_is_left_under_it():
    entries = [{"v": "a", "n": "1"}, {"v": "b", "n": "2"}]
    offered = [filters.of("v", "", ["a", "b"]), filters.of("n", "", ["1", "2"])]
    rules = filters.orphans(offered, {"first": entries, "second": entries[:1]})
    assert ".explorer:has(#v-0:checked):has(#n-1:checked) #first" in rules
    assert "#second" not in rules, "it has one value of each, and filters hide it as they hide its entry"
