"""Strict notebook parameters.

papermill only warns of a parameter that a notebook does not have, and Python does not mind `K = -1`. Each notebook
therefore names its parameters once more in a frozen dataclass, made with `@parameters`, and its second cell is
`p = check(ThatClass, globals())`: a misspelt name, a wrong type or an impossible value stops the notebook there, with a
message that lists what is allowed.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import difflib
import itertools
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sibrepro import paths

T = TypeVar("T")

parameters = dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True),
)
"""Class decorator: a frozen dataclass whose fields are checked by type and by the bounds of their annotation."""

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
# A list may also be given as a single value, so that a sweep can go over it one value a point.
one_or_several = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
Several = Annotated[list[T], Field(min_length=1), one_or_several]

IPYTHON_NAMES = {"In", "Out"}
VALUES = (bool, int, float, str, list, tuple, dict, type(None))  # what papermill can hand over
CHECKED = "_sibcore_checked"


class ParameterError(ValueError):
    """A notebook parameter that is unknown, of the wrong type or impossible."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message alone, not the frames of the checking code."""
        return [f"ParameterError: {self}"]


def check(cls: type[T], namespace: dict[str, Any]) -> T:
    """The parameters of `cls` as they stand in a notebook's `namespace`, or a `ParameterError`.

    In a fresh kernel every plain name that is there came from the parameters cell or was injected by papermill, so
    each has to be a field. When the cell runs again later, the namespace holds the notebook's own results too; then
    the names assigned in parameter-like cells (only assignments, at least one of them a field) are looked at instead.
    """
    fields = [field.name for field in dataclasses.fields(cls)]
    if CHECKED in namespace:
        names = _names_in_parameter_cells(namespace.get("In", []), set(fields))
    else:
        names = {name for name, value in namespace.items() if _is_plain(name, value)}
    given = {name: namespace[name] for name in (*fields, *sorted(names - set(fields))) if name in namespace}
    try:
        checked = cls(**given)
    except ValidationError as error:
        raise ParameterError(_message(cls, given, error)) from None
    namespace[CHECKED] = True
    return checked


def grid(base: T, **values: Iterable[Any]) -> list[T]:
    """`base` with every combination of these values of its fields; the last varies fastest."""
    chosen = itertools.product(*values.values())
    return [dataclasses.replace(base, **dict(zip(values, several, strict=True))) for several in chosen]


def parse(text: str, where: str) -> Any:
    """YAML in which 1e-3 is a number and 1:30 is not ninety, as in YAML 1.2."""
    try:
        return yaml.load(text, _Yaml)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise ValueError(f"{where} is not readable as YAML: {error}") from None


def read_file(path: Path) -> dict[str, Any] | list[dict[str, Any]]:
    """Parameters in a file: a mapping, or a list of mappings, as which the rows of a CSV file are read."""
    if not path.is_file():
        raise ValueError(f"{paths.relative(path)} is missing")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return [{n: parse(v, f"{path.name}, column {n}") for n, v in row.items() if v} for row in _rows(text, path)]
    content = parse(text, path.name) or {}
    if isinstance(content, dict) or (isinstance(content, list) and all(isinstance(row, dict) for row in content)):
        return content
    raise ValueError(f"{path.name} should hold `name: value` lines or a list of `{{name: value}}` entries")


def _rows(text: str, path: Path) -> list[dict[str, str]]:
    try:
        rows = [*csv.DictReader(text.splitlines(), skipinitialspace=True, restkey="")]
    except csv.Error as error:
        raise ValueError(f"{path.name} is not a table with commas: {error}") from None
    for number, row in enumerate(rows, start=2):
        if "" in row:
            raise ValueError(f"{path.name}, line {number}: it has more values than the first line has names")
    return rows


def of_profile(profile: str, notebook: str) -> dict[str, Any]:
    """What `notebooks/params/<profile>/<notebook>.yaml` says; the same file serves `papermill -f`."""
    values = read_file(paths.notebooks() / "params" / profile / f"{notebook}.yaml")
    if isinstance(values, dict):
        return values
    raise ValueError(f"notebooks/params/{profile}/{notebook}.yaml should hold `name: value` lines, not a list")


def in_cells(cells: Iterable[dict]) -> dict[str, Any]:
    """The literals that a notebook's cell tagged `parameters` assigns; None for an expression, which has yet to run."""
    tagged = next((cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])), {"source": ""})
    values = {}
    for node in ast.parse("".join(tagged["source"])).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and node.value is not None:
            values[target.id] = None
            with contextlib.suppress(ValueError):
                values[target.id] = ast.literal_eval(node.value)
    return values


def class_for(source: str, values: dict[str, Any]) -> type:
    """The class that a notebook's `source` checks its parameters with; if it does not, one with the types of `values`.

    So its parameters can be checked before it runs.
    """
    called = re.search(r"\bcheck\((\w+), globals\(\)\)", source)
    home = called and re.search(rf"^from (\S+) import .*\b{called[1]}\b", source, re.MULTILINE)
    if home:
        return pkgutil.resolve_name(f"{home[1]}:{called[1]}")
    plain = {name: value if isinstance(value, (bool, int, float, str)) else None for name, value in values.items()}
    fields = [(name, Any if value is None else type(value), value) for name, value in plain.items()]
    return parameters(dataclasses.make_dataclass("Parameters", fields, frozen=True))


def describe(cls: type) -> str:
    """One line per parameter: name, what is allowed, default, meaning."""
    properties = TypeAdapter(cls).json_schema()["properties"]
    rows = [(n, _allowed(s), f"default {s.get('default')!r}", s.get("description", "")) for n, s in properties.items()]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, wide)).rstrip() for row in rows)


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and name not in IPYTHON_NAMES and isinstance(value, VALUES)


def _names_in_parameter_cells(history: list[str], fields: set[str]) -> set[str]:
    names: set[str] = set()
    for source in history:
        with contextlib.suppress(SyntaxError):  # magics and shell lines
            body = ast.parse(source).body
            if all(isinstance(node, ast.Assign) for node in body):
                assigned = {target.id for node in body for target in node.targets if isinstance(target, ast.Name)}
                names |= assigned if assigned & fields else set()
    return names


def _allowed(schema: dict) -> str:
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if schema.get("type") == "array":
        return f"one or several of: {_allowed(schema['items'])}"
    kind = {"integer": "whole number", "number": "number", "string": "text", "boolean": "True | False"}
    text = kind.get(schema.get("type", ""), schema.get("type", "any"))
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return " ".join([text, " and ".join(bounds)]).strip()


def _message(cls: type, given: dict, error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        near = difflib.get_close_matches(name, [field.name for field in dataclasses.fields(cls)], 1, 0.4)
        missing = "there is no such parameter" + (f" (did you mean {near[0]}?)" if near else "")
        unknown = problem["type"] == "unexpected_keyword_argument"
        said = missing if unknown else f"{given.get(name)!r}: {problem['msg']}"
        lines.append(f"  {name}: {said}")
    return "bad notebook parameters\n" + "\n".join(lines) + f"\nallowed are:\n{describe(cls)}"


class _Yaml(yaml.SafeLoader):
    """What a plain word means in YAML 1.2's core schema: no dates, no sixties, no octals."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for _kind, _words in {
    "null": r"(~|null|Null|NULL|)$",
    "bool": r"(true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(0|[1-9][0-9]*)$",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$",
}.items():
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_words), None)
