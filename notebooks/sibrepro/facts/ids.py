"""The name of a run: `<experiment>-<12 hex digits>`, a hash of its parameters."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection
from typing import Any


def run_id(experiment: str, params: Any, oldest: Collection[str] = ()) -> str:
    """The same parameters give the same name, in whatever order they are written."""
    text = json.dumps(identity(params, oldest), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{experiment}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def identity(params: Any, oldest: Collection[str]) -> dict[str, Any]:
    """What a name is made of: the experiment's oldest fields, and of all later ones those that are not default.

    So an option that is added to an experiment renames none of its runs. A plain dict counts with all it holds.
    """
    values = as_dict(params)
    if not dataclasses.is_dataclass(params):
        return values
    default = {field.name: getattr(field.default, "default", field.default) for field in dataclasses.fields(params)}
    return {name: value for name, value in values.items() if name in oldest or value != default[name]}


def as_dict(params: Any) -> dict[str, Any]:
    return dataclasses.asdict(params) if dataclasses.is_dataclass(params) else dict(params)


def experiment_of(name: str) -> str:
    """The experiment of a run's id."""
    return name.rpartition("-")[0]
