"""The one place that writes published facts: runs of this machine become files of the repository."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch

from sibcore.files import write_atomically
from sibrepro.facts import checksums, published
from sibrepro.facts.experiment import Experiment
from sibrepro.facts.record import Record, plain


def add(experiment: Experiment, records: Iterable[Record]) -> list[str]:
    """Put runs among the published ones of their experiment, in place of those of the same id; returns their ids.

    Files are sorted and a run's line depends on the run alone, so that a diff shows what was added.
    """
    new = {record.id: _without(record, experiment.kept_here) for record in records}
    known = published.find(experiment.name)
    everything = known | new
    if known.keys() & new.keys():  # their lines go first: a kill must not leave one with the arrays of another
        _write_lines(experiment, [record for name, record in known.items() if name not in new])
    ordered = [everything[name] for name in sorted(everything)]
    arrays = {f"{record.id}/{name}": array for record in ordered for name, array in record.arrays.items()}
    for record in new.values() if experiment.network else ():
        checksums.write(published.checkpoints_file(record.id), record.files.path(experiment.network).read_bytes())
    if experiment.checkpoints:
        _write_checkpoints(experiment, ordered)
    write_atomically(published.arrays_file(experiment.name), packed(arrays))
    _write_lines(experiment, ordered)
    return sorted(new)


def _without(record: Record, beginnings: tuple[str, ...]) -> Record:
    kept = {name: array for name, array in record.arrays.items() if not name.startswith(beginnings)}
    return dataclasses.replace(record, arrays=kept)


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The file of these arrays: of equal ones (the labels of a test set, say) it has the first alone."""
    first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    same = {key: first.setdefault((str(a.dtype), a.shape, a.tobytes()), key) for key, a in arrays.items()}
    kept = {key: arrays[key] for key in first.values()}
    others = {key: name for key, name in same.items() if key != name}
    return safetensors.numpy.save(kept, {"same": json.dumps(others)} if others else None)


def line(record: Record) -> dict[str, Any]:
    """A record as a line of facts."""
    values = {name: getattr(record, name) for name in published.FIELDS} | {"metrics": plain(record.metrics)}
    return values | {"sha256": published.content_hash(values, record.arrays)}


def _write_lines(experiment: Experiment, records: Iterable[Record]) -> None:
    lines = "".join(json.dumps(line(record), sort_keys=True, allow_nan=False) + "\n" for record in records)
    write_atomically(published.lines_file(experiment.name), lines.encode())


def _write_checkpoints(experiment: Experiment, records: Iterable[Record]) -> None:
    """Of equal tensors, such as the first weights of a xi that K = 0 leaves alone, the file has the first."""
    tensors, about, first = {}, {}, {}
    for record in records:
        for name in experiment.checkpoints:
            weights, known = record.files.checkpoint(name)
            known = {key: value for key, value in known.items() if key != "history"}  # it is among the run's arrays
            own = {f"{record.id}/{name}/{key}": tensor for key, tensor in weights.items()}
            kept = {key: first.setdefault((t.dtype, t.shape, t.numpy().tobytes()), key) for key, t in own.items()}
            same = {key: other for key, other in kept.items() if key != other}
            sha256 = record.files.checkpoint_hash(name)
            about[f"{record.id}/{name}"] = {"about": known, "sha256": sha256} | ({"same": same} if same else {})
            tensors |= {key: tensor for key, tensor in own.items() if key not in same}
    content = safetensors.torch.save(tensors, {"about": json.dumps(about)})  # one entry: several have no fixed order
    checksums.write(published.checkpoints_file(experiment.name), content)
