"""Which points a sweep has: the syntax of grids, and whether a notebook has such parameters at all.

K=0,1,3,5              a list; each entry is a YAML value, and 1e-3 is a number
seed=0:5, n=0:100:10   whole numbers, the end left out as in Python
grid.yaml              either `name: [values]`, multiplied like the above, or a list of `{name: value}`, a point each
grid.csv               a point a row; an empty entry leaves the notebook's own value
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import difflib
import importlib
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import yaml

from sibrepro import params

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook without its outputs, as it was when the sweep began: later edits do not reach points yet to run."""

    name: str
    text: str
    defaults: Values  # what its parameters cell says
    cls: type | None  # the dataclass its second cell checks them with, if it does

    @classmethod
    def read(cls, path: Path) -> Notebook:
        if not path.is_file():
            raise ValueError(f"there is no notebook {path}")
        content = nbformat.read(path, as_version=4)
        for cell in content.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        defaults = parameters_cell(content.cells)
        if not defaults:
            raise ValueError(f"{path.name} has no parameters: tag the cell that sets them with `parameters`")
        return cls(path.stem, nbformat.writes(content), defaults, _checked_with(content.cells))

    def conform(self, given: Values) -> Values:
        """`given` with numbers as the notebook wants them, or a ValueError that lists the notebook's parameters."""
        unknown = [name for name in given if name not in self.defaults]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.defaults, 1, 0.4)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"{self.name} has no parameter {unknown[0]}{hint}; its parameters are\n{self._list()}")
        typed = {name: _of_type(name, value, self.defaults[name]) for name, value in given.items()}
        if self.cls:
            params.check(self.cls, self.defaults | typed)
        return typed

    def _list(self) -> str:
        return "\n".join(f"  {name} = {value!r}" for name, value in self.defaults.items())


def points(grids: Iterable[str], files: Iterable[Path] = (), zipped: bool = False) -> list[Values]:
    """What varies, for each point in order. Without grid and file that is nothing, for a single point.

    `zipped` pairs the lists instead of multiplying them; the rows of files are always multiplied with the rest.
    """
    lists: dict[str, list] = {}
    rows: list[list[Values]] = []
    for text in grids:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"-g {text}: expected name=values, such as K=0,1,3 or seed=0:5")
        _add(lists, name.strip(), parse(f"[{values}]", f"-g {text}"))
    for file in files:
        content = read_file(file)
        if isinstance(content, dict):
            for name, values in content.items():
                _add(lists, name, values if isinstance(values, list) else [values])
        else:
            rows.append(content)
    axes = [[{name: value} for value in expand(values)] for name, values in lists.items()]
    combined = [_paired(axes)] if zipped and axes else axes
    return [union(parts) for parts in itertools.product(*rows, *combined)]


def parse(text: str, where: str) -> Any:
    """YAML in which 1e-3 is a number and 1:30 is not ninety, as in YAML 1.2."""
    try:
        return yaml.load(text, _Yaml)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not readable as YAML: {error}") from None


def expand(values: list) -> list:
    """`values` with each "0:5" replaced by the whole numbers it stands for."""
    expanded: list = []
    for value in values:
        bounds = re.fullmatch(r"(-?\d+):(-?\d+)(?::(-?[1-9]\d*))?", value) if isinstance(value, str) else None
        expanded += range(*(int(bound) for bound in bounds.groups() if bound)) if bounds else [value]
    if not expanded:
        raise ValueError(f"{values} holds no value: a range a:b goes from a to b - 1")
    return expanded


def read_file(path: Path) -> dict[str, Any] | list[Values]:
    """A grid file: a mapping of lists, or a list of points."""
    if not path.is_file():
        raise ValueError(f"there is no grid file {path}")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        table = csv.DictReader(text.splitlines(), skipinitialspace=True)
        return [{n: parse(v, f"{path.name}, column {n}") for n, v in row.items() if v} for row in table]
    content = parse(text, path.name)
    if isinstance(content, dict) or (isinstance(content, list) and all(isinstance(row, dict) for row in content)):
        return content
    raise ValueError(f"{path.name} should hold `name: [values]` lines or a list of `{{name: value}}` points")


def union(parts: Iterable[Values]) -> Values:
    """All parts together; a parameter may be in one of them only."""
    whole: Values = {}
    for part in parts:
        twice = sorted(set(whole) & set(part))
        if twice:
            raise ValueError(f"{twice[0]} is given twice")
        whole |= part
    return whole


def parameters_cell(cells: Iterable[dict]) -> Values:
    """The literals that the cell tagged `parameters` assigns."""
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    values = {}
    for node in ast.parse("".join(tagged[0]["source"])).body if tagged else []:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and node.value is not None:
            values[target.id] = _literal(node.value)
    return values


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:  # an expression: its type is not known before it runs
        return None


def _checked_with(cells: list) -> type | None:
    """The class in the notebook's `check(TheClass, globals())`, imported as the notebook does; see `params`."""
    for cell in cells:
        if cell.cell_type != "code" or "check(" not in cell.source:
            continue
        try:
            nodes = list(ast.walk(ast.parse(cell.source)))
        except SyntaxError:  # a magic; the notebook itself will check
            continue
        homes = {
            a.asname or a.name: (n.module, a.name) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names
        }
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
                module, name = homes.get(getattr(node.args[0], "id", ""), (None, None))
                return getattr(importlib.import_module(module), name) if module else None
    return None


def _of_type(name: str, value: Any, default: Any) -> Any:
    """`value` as the default's type: only a whole number where a number is wanted is changed."""
    wanted = type(default)
    if wanted not in (bool, int, float, str) or type(value) is wanted:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    said = {bool: "true or false", int: "a whole number", float: "a number", str: f"text (write '\"{value}\"')"}
    raise ValueError(f"{name} = {value!r}: expected {said[wanted]}, as in the notebook's {name} = {default!r}")


def _add(lists: dict[str, list], name: str, values: list) -> None:
    if name in lists:
        raise ValueError(f"{name} is given twice")
    lists[name] = values


def _paired(axes: list[list[Values]]) -> list[Values]:
    longest = max(map(len, axes))
    wrong = [(next(iter(axis[0])), len(axis)) for axis in axes if len(axis) not in (1, longest)]
    if wrong:
        name, length = wrong[0]
        raise ValueError(f"--zip pairs lists of one length, but {name} has {length} values and another list {longest}")
    return [union(parts) for parts in zip(*(axis * (longest // len(axis)) for axis in axes), strict=True)]


class _Yaml(yaml.SafeLoader):
    """Numbers as YAML 1.2 has them."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Yaml.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)
