"""Read the published runs. Only `sibrepro.facts.publish` writes their files.

    results/facts/<experiment>.jsonl              a line for each run: id, version, params, metrics, provenance
    results/facts/<experiment>.safetensors        the arrays of all runs, named "<id>/<array>"
    results/checkpoints/<experiment>.safetensors  the checkpoints of all runs, named "<id>/<checkpoint>/<tensor>"
    results/checkpoints/<id>.safetensors          the network that one run trained

Equal arrays are stored once: the entry "same" of the file's header maps the name of each copy to the stored array.

Each line holds the hash of its content and arrays, and `checksums` has the hashes of the checkpoints. So a damaged file
is an error; it never looks as if a run were missing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from torch import Tensor

from sibcore.files import parse_json
from sibrepro import paths
from sibrepro.facts.checksums import checked, stamp
from sibrepro.facts.record import Record, numbers

FIELDS = ("id", "version", "params", "metrics", "provenance")  # the fields of a `Record` that a line holds


def find(experiment: str) -> dict[str, Record]:
    """Return all published runs of an experiment by id."""
    file = lines_file(experiment)
    return _read(experiment, file, stamp(file)) if file.is_file() else {}


def experiments() -> list[str]:
    """Return the names of the experiments that have published runs."""
    return sorted(file.stem for file in (paths.published() / "facts").glob("*.jsonl"))


def everything() -> list[Record]:
    """Return all published runs of all experiments."""
    return [record for experiment in experiments() for record in find(experiment).values()]


def lines_file(experiment: str) -> Path:
    """Return the file with a line for each run of an experiment."""
    return paths.published() / "facts" / f"{experiment}.jsonl"


def arrays_file(experiment: str) -> Path:
    """Return the file with the arrays of an experiment's runs."""
    return paths.published() / "facts" / f"{experiment}.safetensors"


def checkpoints_file(name: str) -> Path:
    """Return the file with the checkpoints of an experiment's runs, or with the network of one run."""
    return paths.published() / "checkpoints" / f"{name}.safetensors"


def content_hash(line: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the hash of a run's line and arrays."""
    digest = hashlib.sha256(json.dumps({name: line[name] for name in FIELDS}, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]))
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=64)
def _read(experiment: str, file: Path, _: tuple[int, ...]) -> dict[str, Record]:
    """Return an experiment's runs by id, read once for each version of the file of lines."""
    arrays = _arrays(experiment)
    records = {}
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = parse_json(text)
            name = line["id"]
            own = arrays.get(name, {})
            if line["sha256"] != content_hash(line, own):
                raise ValueError(f"{name} does not match its hash")
            values = {field: line[field] for field in FIELDS} | {"metrics": numbers(line["metrics"])}
            records[name] = Record(**values, arrays=own, files=_Published(experiment, name))
        except (ValueError, KeyError, TypeError) as error:
            where = f"{paths.relative(file)}, line {number}"
            raise ValueError(f"{where} is damaged ({error}): restore results/ with git checkout") from error
    return records


def _arrays(experiment: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of an experiment's runs by id and name."""
    file = arrays_file(experiment)
    if not file.is_file():
        return {}
    try:
        with safetensors.safe_open(file, "np") as opened:
            arrays = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118, it is not a dict
            same = parse_json((opened.metadata() or {}).get("same", "{}"))
        arrays |= {key: arrays[stored] for key, stored in same.items()}
    except (safetensors.SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{paths.relative(file)} is damaged ({error}): restore it with git checkout") from error
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        run, _, name = key.partition("/")
        found.setdefault(run, {})[name] = array
    return found


@functools.lru_cache(maxsize=8)
def _checkpoints(file: Path, _: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """Return an opened file of checkpoints, and the description of each checkpoint from its header."""
    opened = safetensors.safe_open(checked(file), "pt")
    return opened, parse_json(opened.metadata()["about"])


@dataclasses.dataclass(frozen=True)
class _Published:
    """The `sibrepro.facts.record.Files` of a published run."""

    experiment: str
    name: str

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors of a checkpoint, and its description."""
        opened, about = self._find(name)
        prefix = f"{self.name}/{name}/"
        keys = {key: key for key in opened.keys() if key.startswith(prefix)}  # noqa: SIM118, it is not a dict
        keys |= about.get("same", {})
        tensors = {key.removeprefix(prefix): opened.get_tensor(stored) for key, stored in keys.items()}
        return tensors, about["about"]

    def checkpoint_hash(self, name: str) -> str:
        """Return the sha256 of the file that the checkpoint was first saved to."""
        return self._find(name)[1]["sha256"]

    def path(self, name: str) -> Path:
        """Return the file of the run's network, or raise a FileNotFoundError if it is not published."""
        path = checkpoints_file(self.name)
        if not path.is_file():
            raise FileNotFoundError(f"{self.name}: its {name} is not published; compute the run here to get it")
        return checked(path)

    def _find(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Return the opened file that holds a checkpoint, and the header's entry on it."""
        file = checkpoints_file(self.experiment)
        opened, known = _checkpoints(file, stamp(file)) if file.is_file() else (None, {})
        if f"{self.name}/{name}" not in known:
            raise FileNotFoundError(f"{self.name}: its checkpoint {name!r} is not published; compute the run here")
        return opened, known[f"{self.name}/{name}"]
