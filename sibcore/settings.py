"""Settings that are checked when they are made: a frozen dataclass whose fields have a type and bounds.

@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    epochs: int = setting(50, least=1)
    precision: str = one_of("float32", "bfloat16")

Recipe(epochs=0)      # ValueError: Recipe: epochs = 0, expected at least 1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def setting(default: Any, *, least: float | None = None, above: float | None = None, below: float | None = None) -> Any:
    """Declare a field. The type of its default (text, whole number or number) is the type of all its values.

    Args:
        default: the value if none is given.
        least: the smallest number allowed.
        above: a bound that numbers must exceed.
        below: a bound that numbers must stay under.
    """
    return dataclasses.field(default=default, metadata={"least": least, "above": above, "below": below})


def one_of(*allowed: str) -> Any:
    """Declare a field that takes one of these texts; the first is the default."""
    return dataclasses.field(default=allowed[0], metadata={"allowed": allowed})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of settings. An impossible value raises a ValueError with the field and what was expected."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = _mismatch(value, field.default, field.metadata)
            if expected:
                raise ValueError(f"{type(self).__name__}: {field.name} = {value!r}, expected {expected}")


def _mismatch(value: Any, default: Any, bounds: Mapping[str, Any]) -> str | None:
    """Return None if the value is possible, else a description of what was expected."""
    allowed = bounds.get("allowed")
    if allowed:
        return None if value in allowed else f"one of {', '.join(map(repr, allowed))}"
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    whole = isinstance(default, int)
    # True and False are whole numbers to Python, but hardly what was meant
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
        return "a whole number" if whole else "a number"
    least, above, below = bounds.get("least"), bounds.get("above"), bounds.get("below")
    if least is not None and value < least:
        return f"at least {least}"
    if above is not None and value <= above:
        return f"above {above}"
    if below is not None and value >= below:
        return f"below {below}"
    return None
