"""`Record`: a finished run with its id, parameters, metrics, arrays and provenance.

The id of a run is `<experiment>-<12 hex digits>`. The digits are a hash of the parameters, so the same parameters give
the same id on every machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

# Experiments that got another name after runs of theirs had been published: the old name, and today's. An id keeps its
# digits, so `realism-c6d2567738b3` is today's `class_imbalance-c6d2567738b3`.
RENAMED = {
    "anatomy": "diagnostics",
    "contender": "method_comparison",
    "realism": "class_imbalance",
    "recoding": "jpeg_compression",
}


class Files(Protocol):
    """Read the files that a run left besides its numbers.

    There are two implementations, because a run of this machine has a folder of its own (`local`), while published runs
    share one file of checkpoints (`published`).
    """

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors of the checkpoint `name`, such as "best", and the description stored with them."""

    def checkpoint_hash(self, name: str) -> str:
        """Return the sha256 of the file that the checkpoint `name` was saved to when the run was computed."""

    def path(self, name: str) -> Path:
        """Return where the run's file `name` is, such as a trained network."""


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """A finished run, computed on this machine or published.

    Attributes:
        id: `<experiment>-<12 hex digits>`.
        version: the version of the experiment that computed it.
        params: its parameters by name.
        metrics: its numbers by name. A metric can also be a text or a dictionary.
        provenance: the commit, package versions, machine and hashes of the data it was computed with.
        arrays: its curves, trajectories and predictions by name.
        files: its checkpoints and other files.
    """

    id: str
    version: int
    params: dict[str, Any]
    metrics: dict[str, Any]
    provenance: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    files: Files


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as JSON can hold them: NaN and infinity, the result of a run that diverged, become null."""
    values = dict(metrics)
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return values


def numbers(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that `plain` wrote, with null as NaN again."""
    return {name: math.nan if value is None else value for name, value in written.items()}


class Spelling(NamedTuple):
    """How settings that were renamed later were spelled when the first runs of an experiment were published.

    Ids are hashes of the first spelling, so a renamed setting moves no id.

    Attributes:
        first: turns settings as they are spelled today into the first spelling.
        today: turns the parameters of a published run, in either spelling, into today's.
    """

    first: Callable[[dict[str, Any]], dict[str, Any]] = dict
    today: Callable[[dict[str, Any]], dict[str, Any]] = dict


SAME_SPELLING = Spelling()  # of settings that were never renamed


def run_id(experiment: str, params: Any, oldest: Collection[str] = (), spelling: Spelling = SAME_SPELLING) -> str:
    """Return the id of a run: the name of its experiment and a hash of its parameters, in whatever order they come.

    Args:
        experiment: the experiment's name.
        params: the run's settings, a dataclass or a dictionary.
        oldest: the fields that are part of every id, see `identity`.
        spelling: how the settings were spelled first.
    """
    text = json.dumps(identity(params, oldest, spelling), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{experiment}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def identity(params: Any, oldest: Collection[str], spelling: Spelling = SAME_SPELLING) -> dict[str, Any]:
    """Return the parameters that an id is a hash of.

    These are the experiment's oldest fields, and those of the later fields that differ from their default. So adding an
    option to an experiment renames none of its runs. Of a dictionary, which has no defaults, every entry counts.
    """
    values = spelling.first(as_dict(params))
    if not dataclasses.is_dataclass(params):
        return values
    # a field's default may be wrapped in pydantic's Field(default, gt=0)
    default = {field.name: getattr(field.default, "default", field.default) for field in dataclasses.fields(params)}
    return {name: value for name, value in values.items() if name in oldest or value != default.get(name)}


def as_dict(params: Any) -> dict[str, Any]:
    """Return settings, a dataclass or a mapping, as a dictionary."""
    return dataclasses.asdict(params) if dataclasses.is_dataclass(params) else dict(params)


def todays_name(name: str) -> str:
    """Return today's form of the name of an experiment or the id of a run, which may be one from before a renaming."""
    experiment, dash, digits = name.partition("-")
    return f"{RENAMED.get(experiment, experiment)}{dash}{digits}"


def experiment_of(name: str) -> str:
    """Return the name of the experiment that a run's id begins with."""
    return name.rpartition("-")[0]
