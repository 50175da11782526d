"""Made-up records, and a project root of their own to publish them in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from sibrepro.facts import Experiment, Inputs, Numbers, Record, publish
from sibrepro.facts.record import as_dict


def record(
    experiment: Experiment,
    params: Any,
    metrics: dict[str, Any],
    arrays: dict[str, np.ndarray] | None = None,
    data: dict[str, str] | None = None,
    version: int = 1,
) -> Record:

    made = {
        "data": data or {},
        "commit": "0" * 40,
        "threads": 1,
        "wall_seconds": 1.0,
        "finished": "2026-01-01T00:00:00+00:00",
    }
    return Record(experiment.id(params), version, as_dict(params), metrics, made, arrays or {}, files=None)


def run(
    experiment: Experiment,
    params: Any,
    compute: Callable[..., Numbers],
    data: dict[str, str] | None = None,
    **changes: Any,
) -> Record:
    """The run of an experiment that computes in this way, of inputs with these hashes."""
    spent = changes.pop("spent", 0.0)
    origin = Inputs(data or {}, lambda: None)
    return dataclasses.replace(experiment, compute=compute, **changes).run(params, origin=origin, spent=spent)


def published(experiment: Experiment, *records: Record) -> None:
    publish.add(experiment, records)
