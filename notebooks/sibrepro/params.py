"""Check the parameters of notebooks, and read them from files.

papermill only warns about a parameter that a notebook does not have, and Python accepts `K = -1`. Therefore each
notebook's parameters are also the fields of a frozen dataclass, made with `@parameters`, and the notebook's second cell
is `p = check(ThatClass, globals())`. A misspelt name, a wrong type or an impossible value stops the notebook there, and
the message lists what is allowed.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import difflib
import html
import itertools
import json
import pkgutil
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sibrepro import paths

T = TypeVar("T")

_checked = dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True),
)


def parameters(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass with fields checked by type and by the bounds in their annotation.

    In a notebook an instance is shown as a small table, and as lines of text where there is no HTML.
    """
    made = _checked(cls)
    made._repr_html_ = as_html
    made._repr_pretty_ = lambda self, printer, cycle: printer.text(as_text(self))
    return made


Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
# A list may also be given as a single value, so that a sweep can run one value at a time.
one_or_several = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
Several = Annotated[list[T], Field(min_length=1), one_or_several]

IPYTHON_NAMES = {"In", "Out"}
VALUES = (bool, int, float, str, list, tuple, dict, type(None))  # the types of values that papermill can inject
CHECKED = "_sibcore_checked"  # is set in a notebook's namespace once `check` was called there


class ParameterError(ValueError):
    """Raised if a notebook parameter is unknown, of the wrong type or out of bounds."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the message alone, without a traceback of this module."""
        return [f"ParameterError: {self}"]


def check(cls: type[T], namespace: dict[str, Any]) -> T:
    """Return a notebook's parameters as an instance of `cls`.

    In a fresh kernel, every plain value in the namespace comes from the parameters cell or from papermill, so its name
    has to be a field. If the cell runs again later, the namespace also holds the notebook's results. Then only those
    names are checked that were assigned in cells which look like parameters: cells of nothing but assignments, at least
    one of them to a field.

    Args:
        cls: the class of the parameters.
        namespace: the notebook's `globals()`.

    Raises:
        ParameterError: if a name or a value is not allowed.
    """
    fields = [field.name for field in dataclasses.fields(cls)]
    if CHECKED in namespace:
        names = _names_in_parameter_cells(namespace.get("In", []), set(fields))
    else:
        names = {name for name, value in namespace.items() if _is_plain(name, value)}
    names = [*fields, *sorted(names - set(fields))]
    given = {name: namespace[name] for name in names if name in namespace}
    try:
        checked = cls(**given)
    except ValidationError as error:
        raise ParameterError(_message(cls, given, error)) from None
    namespace[CHECKED] = True
    return checked


def grid(base: T, **values: Iterable[Any]) -> list[T]:
    """Return `base` with every combination of these values of its fields. The last field varies fastest."""
    found = []
    for chosen in itertools.product(*values.values()):
        changes = dict(zip(values, chosen, strict=True))
        found.append(dataclasses.replace(base, **changes))
    return found


def parse(text: str, where: str) -> Any:
    """Return the value of a YAML text. As in YAML 1.2, 1e-3 is a number and 1:30 is not ninety.

    Args:
        text: the text.
        where: the option or file it is from, for the error message.
    """
    try:
        return yaml.load(text, _Yaml)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise ValueError(f"{where} is not readable as YAML: {error}") from None


def read_file(path: Path) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the parameters in a YAML or CSV file: a dictionary, or a list of them such as the rows of a CSV file."""
    if not path.is_file():
        raise ValueError(f"{paths.relative(path)} is missing")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return _rows(text, path)
    content = parse(text, path.name) or {}
    if isinstance(content, dict) or (isinstance(content, list) and all(isinstance(row, dict) for row in content)):
        return content
    raise ValueError(f"{path.name} should hold `name: value` lines or a list of `{{name: value}}` entries")


def _rows(text: str, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file, without their empty entries."""
    try:
        rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True, restkey=""))
    except csv.Error as error:
        raise ValueError(f"{path.name} is not a table with commas: {error}") from None
    found = []
    for number, row in enumerate(rows, start=2):
        if "" in row:  # the key that DictReader gives to values without a name
            raise ValueError(f"{path.name}, line {number}: it has more values than the first line has names")
        found.append({name: parse(value, f"{path.name}, column {name}") for name, value in row.items() if value})
    return found


def of_profile(profile: str, notebook: str) -> dict[str, Any]:
    """Return a notebook's parameters in a profile, from the file that also works with `papermill -f`."""
    values = read_file(paths.notebooks() / "params" / profile / f"{notebook}.yaml")
    if isinstance(values, dict):
        return values
    raise ValueError(f"notebooks/params/{profile}/{notebook}.yaml should hold `name: value` lines, not a list")


def in_cells(cells: Iterable[dict]) -> dict[str, Any]:
    """Return the values that a notebook's cell tagged `parameters` assigns, by name.

    The value of an expression that is not a literal is None, because it is known only once the notebook runs.
    """
    source = next(("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", [])), "")
    values = {}
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and node.value is not None:
            values[target.id] = None
            with contextlib.suppress(ValueError):
                values[target.id] = ast.literal_eval(node.value)
    return values


def class_for(source: str, values: dict[str, Any]) -> type:
    """Return the class of a notebook's parameters, so that they can be checked before the notebook runs.

    Args:
        source: the source of the notebook's cells. If it calls `check`, the class is the one given there.
        values: the values of its parameters cell. If the source does not call `check`, their types make the class.
    """
    called = re.search(r"\bcheck\((\w+), globals\(\)\)", source)
    home = called and re.search(rf"^from (\S+) import .*\b{called[1]}\b", source, re.MULTILINE)
    if home:
        return pkgutil.resolve_name(f"{home[1]}:{called[1]}")
    plain = {name: value if isinstance(value, (bool, int, float, str)) else None for name, value in values.items()}
    fields = [(name, Any if value is None else type(value), value) for name, value in plain.items()]
    return parameters(dataclasses.make_dataclass("Parameters", fields, frozen=True))


def describe(cls: type) -> str:
    """Return a line for each parameter: its name, which values are allowed, its default and its meaning."""
    rows = []
    for name, schema in TypeAdapter(cls).json_schema()["properties"].items():
        rows.append([name, _allowed(schema), f"default {schema.get('default')!r}", schema.get("description", "")])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def as_html(values: Any) -> str:
    """Return parameters as an HTML table: name, value, what is allowed and what it means.

    A value that is not the default is bold, and the default stands beside it.

    Args:
        values: an instance of a class made with `@parameters`.
    """
    head = "".join(f'<th scope="col">{column}</th>' for column in ("parameter", "value", "allowed", "meaning"))
    rows = []
    for name, schema in TypeAdapter(type(values)).json_schema()["properties"].items():
        value, default = getattr(values, name), schema.get("default")
        shown = f"<code>{html.escape(_literal(value))}</code>"
        if value != default:
            shown = f"<b>{shown}</b> (default {html.escape(_literal(default))})"
        cells = [shown, html.escape(_allowed(schema)), html.escape(schema.get("description", ""))]
        rows.append(f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<table class="parameters"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def as_text(values: Any, width: int = 100) -> str:
    """Return parameters as text such as "Toy(n=32, K=3)", wrapped between them at `width` characters."""
    said = [f"{field.name}={getattr(values, field.name)!r}" for field in dataclasses.fields(values)]
    unbroken = ", ".join(text.replace(" ", "\0") for text in said)
    name = type(values).__name__
    options = {"subsequent_indent": "    ", "break_on_hyphens": False, "break_long_words": False}
    lines = textwrap.fill(f"{name}({unbroken})", width, **options)
    return lines.replace("\0", " ")


def _literal(value: Any) -> str:
    """Return a value as it is written in a cell, with double quotes for text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _is_plain(name: str, value: object) -> bool:
    """Tell whether a name in a fresh kernel's namespace can only be a parameter."""
    return not name.startswith("_") and name not in IPYTHON_NAMES and isinstance(value, VALUES)


def _names_in_parameter_cells(history: list[str], fields: set[str]) -> set[str]:
    """Return the names assigned in those executed cells that only assign, and assign at least one field."""
    names: set[str] = set()
    for source in history:
        try:
            body = ast.parse(source).body
        except SyntaxError:  # magics and shell lines
            continue
        if all(isinstance(node, ast.Assign) for node in body):
            targets = [target for node in body for target in node.targets]
            assigned = {target.id for target in targets if isinstance(target, ast.Name)}
            if assigned & fields:
                names |= assigned
    return names


def _allowed(schema: dict) -> str:
    """Return as a text which values a field's JSON schema allows, such as "whole number >= 0"."""
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
    """Return what is wrong with each parameter, and which parameters there are."""
    fields = [field.name for field in dataclasses.fields(cls)]
    lines = ["bad notebook parameters"]
    for problem in error.errors():
        name = str(problem["loc"][0])
        said = f"{given.get(name)!r}: {problem['msg']}"
        if problem["type"] == "unexpected_keyword_argument":
            near = difflib.get_close_matches(name, fields, 1, 0.4)
            said = "there is no such parameter" + (f" (did you mean {near[0]}?)" if near else "")
        lines.append(f"  {name}: {said}")
    return "\n".join([*lines, "allowed are:", describe(cls)])


class _Yaml(yaml.SafeLoader):
    """A loader that reads plain words as YAML 1.2 does: without dates, sexagesimal numbers and old octal numbers."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for _kind, _words in {
    "null": r"(~|null|Null|NULL|)$",
    "bool": r"(true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(0|[1-9][0-9]*)$",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$",
}.items():
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_words), None)
