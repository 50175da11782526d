"""Made-up records, and a project root of their own to publish them in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from sibrepro.facts import Experiment, Inputs, Numbers, Record, publish
from sibrepro.facts.experiment import EXPERIMENTS
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


def computing(experiment: Experiment, compute: Callable[..., Numbers], **changes: Any) -> Experiment:
    """Return the experiment with another computation, one that needs no inputs; it is declared in the other's place.

    After the test the first one is declared again (`conftest.nothing_remembered`).
    """
    return dataclasses.replace(experiment, compute=compute, inputs=None, **changes)


def run(
    experiment: Experiment,
    params: Any,
    compute: Callable[..., Numbers],
    data: dict[str, str] | None = None,
    spent: float = 0.0,
    **changes: Any,
) -> Record:
    """Return the run of an experiment that computes in this way, made of inputs with these hashes."""
    origin = Inputs(data or {}, lambda: None)
    return computing(experiment, compute, **changes).run(params, origin=origin, spent=spent)


def as_if_computed(experiment: Experiment, params: Any, numbers: Numbers, data: dict[str, str] | None = None) -> Record:
    """Keep numbers as a run of this machine, as if the experiment's own code had computed them."""
    declared = mock.patch.dict(EXPERIMENTS)  # the experiment itself is declared again afterwards
    with declared, mock.patch.object(Experiment, "code", experiment.code):
        return run(experiment, params, lambda p: numbers, data, keeps_files=False)


def published(experiment: Experiment, *records: Record) -> None:
    publish.add(experiment, records)
