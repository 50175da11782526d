"""Filters of long lists without a script: radio buttons, and the CSS rules that hide what they leave out."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

MOST = 9  # values that a filter may have


@dataclasses.dataclass(frozen=True)
class Filter:
    """One filter: a group of radio buttons.

    Attributes:
        name: the beginning of its buttons' ids, and the name of an attribute of the entries.
        label: what readers see as its name.
        values: the values that can be chosen, in the order of the buttons.
        counts: how many entries have each value.
    """

    name: str
    label: str
    values: tuple[str, ...]
    counts: Mapping[str, int]

    def button(self, value: str) -> str:
        """Return the id of the button of a value."""
        return f"{self.name}-{self.values.index(value)}"


def of(name: str, label: str, column: Sequence[str], order: Sequence[str] = ()) -> Filter:
    """Return the filter of a column.

    Args:
        name: see `Filter`.
        label: see `Filter`.
        column: the value of each entry.
        order: values in the order of the buttons. Others follow as they occur.
    """
    counts = Counter(column)
    values = [value for value in order if value in counts]
    values += [value for value in counts if value not in values]
    return Filter(name, label, tuple(values), counts)


def rules(filters: Sequence[Filter], entries: Sequence[Mapping[str, str]]) -> str:
    """Return the CSS of filters: entries that a chosen value leaves out are hidden, and a text says if none is left.

    Args:
        filters: the filters.
        entries: the values of each entry, by the names of the filters.
    """
    lines = []
    for filter in filters:
        for value in filter.values:
            chosen = f".explorer:has(#{filter.button(value)}:checked)"
            lines.append(f'{chosen} [data-{filter.name}]:not([data-{filter.name}~="{filter.button(value)}"])')
    hide = ",\n".join(lines) + " { display: none }\n" if lines else ""
    empty = [_selector(filters, combination) + " .none" for combination in impossible(filters, entries)]
    return hide + (",\n".join(empty) + " { display: block }\n" if empty else "")


def impossible(filters: Sequence[Filter], entries: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the combinations of values that no entry has, without those that contain another such combination."""
    found: list[dict[str, str]] = []
    for size in range(2, len(filters) + 1):  # each single value occurs
        for several in itertools.combinations(filters, size):
            names = [filter.name for filter in several]
            there = {tuple(entry[name] for name in names) for entry in entries}
            for values in itertools.product(*(filter.values for filter in several)):
                combination = dict(zip(names, values, strict=True))
                if values not in there and not any(part.items() <= combination.items() for part in found):
                    found.append(combination)
    return found


def orphans(filters: Sequence[Filter], headings: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """Return the CSS that hides headings under which a combination of filters leaves nothing.

    Args:
        filters: the filters.
        headings: the values of the entries under each heading, by its id.
    """
    lines = []
    for heading, entries in headings.items():
        own = [of(filter.name, "", [entry[filter.name] for entry in entries], filter.values) for filter in filters]
        for combination in impossible(own, entries):
            lines.append(f"{_selector(filters, combination)} #{heading}")
    return ",\n".join(lines) + " { display: none }\n" if lines else ""


def _selector(filters: Sequence[Filter], combination: Mapping[str, str]) -> str:
    """Return the selector of the list while these values are chosen."""
    by_name = {filter.name: filter for filter in filters}
    return ".explorer" + "".join(f":has(#{by_name[name].button(value)}:checked)" for name, value in combination.items())
