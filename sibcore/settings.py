"""Settings that are checked when they are made: a frozen dataclass whose fields have a kind and bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


def setting(default: Any, *, least: float | None = None, above: float | None = None, below: float | None = None) -> Any:
    """A field with this default, of its kind (a whole number, a number, a text), inside these bounds."""
    return dataclasses.field(default=default, metadata={"least": least, "above": above, "below": below})


def one_of(*allowed: str) -> Any:
    """A field with one of these values, by default the first."""
    return dataclasses.field(default=allowed[0], metadata={"allowed": allowed})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class; a value that cannot be is a ValueError that names the field and what is expected."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            problem = _problem(value, field.default, field.metadata)
            if problem:
                raise ValueError(f"{type(self).__name__}: {field.name} = {value!r}, expected {problem}")


def _problem(value: Any, default: Any, bounds: Any) -> str | None:
    """What is expected, if the value is not."""
    allowed = bounds.get("allowed")
    if allowed:
        return None if value in allowed else f"one of {', '.join(map(repr, allowed))}"
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
        return "a whole number" if whole else "a number"
    checks = {"least": ("at least", value.__ge__), "above": ("above", value.__gt__), "below": ("below", value.__lt__)}
    for name, (words, holds) in checks.items():
        if bounds.get(name) is not None and not holds(type(value)(bounds[name])):
            return f"{words} {bounds[name]}"
    return None
