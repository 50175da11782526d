"""Strict notebook parameters.

papermill only warns of a parameter that a notebook does not have, and Python does not mind `K = -1`. Each notebook
therefore names its parameters once more in a frozen dataclass, made with `@parameters`, and its second cell is
`p = check(ThatClass, globals())`: a misspelt name, a wrong type or an impossible value stops the notebook there, with a
message that lists what is allowed.
"""

from __future__ import annotations

import ast
import dataclasses
from types import FunctionType, ModuleType
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

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
# `list[T]` with this may also be given as a single T, so that a sweep can go over it one value a point
one_or_several = BeforeValidator(lambda value: value if isinstance(value, list) else [value])

IPYTHON_NAMES = {"In", "Out", "get_ipython", "exit", "quit", "open"}
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


def describe(cls: type) -> str:
    """One line per parameter: name, what is allowed, default, meaning."""
    properties = TypeAdapter(cls).json_schema()["properties"]
    rows = [(n, _allowed(s), f"default {s.get('default')!r}", s.get("description", "")) for n, s in properties.items()]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, wide)).rstrip() for row in rows)


def _is_plain(name: str, value: object) -> bool:
    hidden = name.startswith("_") or name in IPYTHON_NAMES
    return not hidden and not isinstance(value, (ModuleType, FunctionType, type))


def _names_in_parameter_cells(history: list[str], fields: set[str]) -> set[str]:
    names: set[str] = set()
    for source in history:
        try:
            body = ast.parse(source).body
        except SyntaxError:  # magics and shell lines
            continue
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
        unknown = problem["type"] == "unexpected_keyword_argument"
        value = given.get(name)
        said = "there is no such parameter" if unknown else f"{value!r}: {problem['msg']}"
        lines.append(f"  {name}: {said}")
    return "bad notebook parameters\n" + "\n".join(lines) + f"\nallowed are:\n{describe(cls)}"
