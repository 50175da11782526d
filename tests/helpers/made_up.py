"""Made-up records and runs, whose numbers are given or computed by a function of the test."""

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
    version: int | None = None,
) -> Record:
    """Return a record as if a run had ended with these numbers.

    Args:
        experiment: the experiment of the run.
        params: its settings.
        metrics: its numbers.
        arrays: its arrays, by default none.
        data: hashes of the data that it was made of, by default none.
        version: version of the experiment that it was made by, by default the present one.
    """
    made = {
        "data": data or {},
        "commit": "0" * 40,
        "threads": 1,
        "wall_seconds": 1.0,
        "finished": "2026-01-01T00:00:00+00:00",
    }
    version = version or experiment.version
    return Record(experiment.id(params), version, as_dict(params), metrics, made, arrays or {}, files=None)


def computing(experiment: Experiment, compute: Callable[..., Numbers], **changes: Any) -> Experiment:
    """Return an experiment that computes in another way, which needs no inputs.

    It is declared in place of the original until the end of the test (`conftest.nothing_remembered`).

    Args:
        experiment: the original.
        compute: the other computation.
        changes: other fields of the experiment to change, such as `version`.
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
    """Run an experiment that computes in another way, and return its record.

    Args:
        experiment: the experiment.
        params: settings of the run.
        compute: the computation, as for `computing`.
        data: hashes of the run's inputs, by default none.
        spent: seconds of work that the run reports besides its own.
        changes: fields of the experiment to change.
    """
    origin = Inputs(data or {}, lambda: None)
    return computing(experiment, compute, **changes).run(params, origin=origin, spent=spent)


def as_if_computed(experiment: Experiment, params: Any, numbers: Numbers, data: dict[str, str] | None = None) -> Record:
    """Keep numbers as a run of this machine, as if the experiment itself had computed them; return the record."""
    declared = mock.patch.dict(EXPERIMENTS)  # the experiment itself is declared again afterwards
    with declared, mock.patch.object(Experiment, "code", experiment.code):
        return run(experiment, params, lambda p: numbers, data, keeps_files=False)


def published(experiment: Experiment, *records: Record) -> None:
    """Publish records of one experiment."""
    publish.add(experiment, records)
