"""Publish runs: write runs of this machine into the files of the repository that `published` reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
from torch import Tensor

from sibcore.files import write_atomically
from sibrepro.facts import checksums, published
from sibrepro.facts.experiment import Experiment
from sibrepro.facts.record import Record, plain

LARGEST_NETWORK = 16_000_000  # bytes; a larger network is not published, but what was computed with it is


def add(experiment: Experiment, records: Iterable[Record]) -> list[str]:
    """Add runs to the published runs of their experiment and return their ids. A run replaces one of the same id.

    Files are sorted by id and a run's line depends on that run alone, so that a diff shows what was added.
    """
    new = {record.id: _without_kept(record, experiment) for record in records}
    known = published.find(experiment.name)
    everything = known | new
    if known.keys() & new.keys():  # their lines go first: a kill must not leave one with the arrays of another
        _write_lines(experiment, [record for name, record in known.items() if name not in new])
    ordered = [everything[name] for name in sorted(everything)]
    if experiment.network:
        for record in new.values():
            network = record.files.path(experiment.network)
            if network.stat().st_size <= LARGEST_NETWORK:
                checksums.write(published.checkpoints_file(record.id), network.read_bytes())
    if experiment.checkpoints:
        _write_checkpoints(experiment, ordered)
    arrays = {f"{record.id}/{name}": array for record in ordered for name, array in record.arrays.items()}
    write_atomically(published.arrays_file(experiment.name), packed(arrays))
    _write_lines(experiment, ordered)
    return sorted(new)


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of a file of arrays. Equal arrays, such as the labels of a test set, are stored once."""
    stored, copies = _without_copies(arrays)
    return safetensors.numpy.save(stored, {"same": json.dumps(copies)} if copies else None)


def line(record: Record) -> dict[str, Any]:
    """Return what the line of a published run holds."""
    values = {name: getattr(record, name) for name in published.FIELDS} | {"metrics": plain(record.metrics)}
    return values | {"sha256": published.content_hash(values, record.arrays)}


def _without_kept(record: Record, experiment: Experiment) -> Record:
    """Return a run without the arrays that its experiment does not publish."""
    arrays = {name: array for name, array in record.arrays.items() if not name.startswith(experiment.kept_here)}
    return dataclasses.replace(record, arrays=arrays)


def _without_copies(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Split arrays or tensors into the first of all equal ones, and the names of the others, each with the first's."""
    first: dict[tuple[Any, ...], str] = {}
    stored, copies = {}, {}
    for name, array in arrays.items():
        name_of_first = first.setdefault((str(array.dtype), array.shape, np.asarray(array).tobytes()), name)
        if name_of_first == name:
            stored[name] = array
        else:
            copies[name] = name_of_first
    return stored, copies


def _write_lines(experiment: Experiment, records: Iterable[Record]) -> None:
    """Write the file of lines."""
    lines = "".join(json.dumps(line(record), sort_keys=True, allow_nan=False) + "\n" for record in records)
    write_atomically(published.lines_file(experiment.name), lines.encode())


def _write_checkpoints(experiment: Experiment, records: Iterable[Record]) -> None:
    """Write the file of checkpoints. Equal tensors, such as weights that training did not change, are stored once."""
    tensors: dict[str, Tensor] = {}
    header: dict[str, dict[str, Any]] = {}
    owner: dict[str, str] = {}  # the checkpoint that a tensor belongs to
    for record in records:
        for name in experiment.checkpoints:
            checkpoint = f"{record.id}/{name}"
            weights, about = record.files.checkpoint(name)
            about = {key: value for key, value in about.items() if key != "history"}  # it is among the run's arrays
            header[checkpoint] = {"about": about, "sha256": record.files.checkpoint_hash(name)}
            for key, tensor in weights.items():
                tensors[f"{checkpoint}/{key}"] = tensor
                owner[f"{checkpoint}/{key}"] = checkpoint
    stored, copies = _without_copies(tensors)
    for key, name_of_first in copies.items():
        header[owner[key]].setdefault("same", {})[key] = name_of_first
    # The whole header is one entry, because safetensors writes several entries in no fixed order.
    content = safetensors.torch.save(stored, {"about": json.dumps(header)})
    checksums.write(published.checkpoints_file(experiment.name), content)
