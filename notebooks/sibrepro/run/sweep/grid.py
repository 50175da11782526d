"""Which points a sweep has: the syntax of grids.

K=0,1,3,5              a list; each entry is a YAML value, and 1e-3 is a number
seed=0:5, n=0:100:10   whole numbers, the end left out as in Python
grid.yaml              either `name: [values]`, multiplied like the above, or a list of `{name: value}`, a point each
grid.csv               a point a row; an empty entry leaves the notebook's own value
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from sibrepro import params


def points(grids: Iterable[str], files: Iterable[Path] = (), zipped: bool = False) -> list[dict]:
    """What varies, for each point in order. Without grid and file that is nothing, for a single point.

    `zipped` pairs the lists instead of multiplying them; the rows of files are always multiplied with the rest.
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
    """All parts together; a parameter may be in one of them only."""
    whole = {}
    for part in parts:
        for name in whole.keys() & part.keys():
            raise ValueError(f"{name} is given twice")
        whole |= part
    return whole


def _axis(name: str, values: object) -> list[dict]:
    """`values` of one parameter, with each "0:5" replaced by the whole numbers it stands for."""
    expanded = []
    for value in values if isinstance(values, list) else [values]:
        bounds = re.fullmatch(r"(-?\d+):(-?\d+)(?::(-?[1-9]\d*))?", value) if isinstance(value, str) else None
        expanded += range(*(int(bound) for bound in bounds.groups() if bound)) if bounds else [value]
    if not expanded:
        raise ValueError(f"{name}: {values} holds no value: a range a:b goes from a to b - 1")
    return [{name: value} for value in expanded]


def _paired(axes: list[list[dict]]) -> list[dict]:
    longest = max(map(len, axes))
    for axis in axes:
        if len(axis) not in (1, longest):
            said = f"{next(iter(axis[0]))} has {len(axis)} values and another list {longest}"
            raise ValueError(f"--zip pairs lists of one length, but {said}")
    return [union(parts) for parts in zip(*(axis * (longest // len(axis)) for axis in axes), strict=True)]
