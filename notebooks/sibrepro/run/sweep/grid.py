"""Read the grid of a sweep, from options and files.

K=0,1,3,5              a list of values in YAML, where 1e-3 is a number
seed=0:5, n=0:100:10   a range of whole numbers without its end, as in Python
grid.yaml              either `name: [values]` lines, which are options as above, or a list of points `{name: value}`
grid.csv               a point in each row; an empty entry leaves the value that the notebook has
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from sibrepro import params

RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(-?[1-9]\d*))?")


def points(grids: Iterable[str], files: Iterable[Path] = (), zipped: bool = False) -> list[dict]:
    """Return the parameters that vary, for each point in order. Without grids and files there is one point.

    Args:
        grids: options such as "K=0,1,3".
        files: YAML or CSV files.
        zipped: whether to pair the lists of values, instead of taking every combination of them. The points listed in
            files are combined with all others in either case.
    """
    axes, rows = [], []
    for text in grids:
        name, _, values = text.partition("=")
        if not values:
            raise ValueError(f"-g {text}: expected name=values, such as K=0,1,3 or seed=0:5")
        axes.append(_axis(name.strip(), params.parse(f"[{values}]", f"-g {text}")))
    for content in map(params.read_file, files):
        if isinstance(content, dict):
            axes += [_axis(name, values) for name, values in content.items()]
        else:
            rows.append(content)
    combined = [_paired(axes)] if zipped and axes else axes
    return [union(parts) for parts in itertools.product(*rows, *combined)]


def union(parts: Iterable[dict]) -> dict:
    """Return several dictionaries as one, or raise a ValueError if a parameter is in two of them."""
    whole = {}
    for part in parts:
        for name in whole.keys() & part.keys():
            raise ValueError(f"{name} is given twice")
        whole |= part
    return whole


def _axis(name: str, values: object) -> list[dict]:
    """Return a dictionary for each value of a parameter, where a text such as "0:5" stands for a range of values."""
    expanded = []
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, str) and (bounds := RANGE.fullmatch(value)):
            expanded += range(*(int(bound) for bound in bounds.groups() if bound))
        else:
            expanded.append(value)
    if not expanded:
        raise ValueError(f"{name}: {values} holds no value. A range a:b goes from a to b - 1")
    return [{name: value} for value in expanded]


def _paired(axes: list[list[dict]]) -> list[dict]:
    """Pair the values of several parameters. A parameter with a single value has it in every pair."""
    longest = max(map(len, axes))
    for axis in axes:
        if len(axis) not in (1, longest):
            said = f"{next(iter(axis[0]))} has {len(axis)} values, another parameter has {longest}"
            raise ValueError(f"--zip needs lists of equal length, but {said}")
    extended = [axis if len(axis) == longest else axis * longest for axis in axes]
    return [union(parts) for parts in zip(*extended, strict=True)]
