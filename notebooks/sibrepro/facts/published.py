"""The published facts: few files, read-only for everything but `sibrepro.facts.publish`.

    results/facts/<experiment>.jsonl              a line a run: id, version, params, metrics, provenance
    results/facts/<experiment>.safetensors        its arrays, named "<id>/<array>"; of equal ones the first, and in the
                                                  header, as "same", whose name stands for each of the others
    results/checkpoints/<experiment>.safetensors  what many small runs trained, named "<id>/<checkpoint>/<tensor>"
    results/checkpoints/<id>.safetensors          what one run trained, where that is a network

Each line has the hash of its own content and arrays, and `checksums` knows the checkpoints, so that a damaged fact is
an error and never a missing one.
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

FIELDS = ("id", "version", "params", "metrics", "provenance")  # of a `Record`, in its order


def find(experiment: str) -> dict[str, Record]:
    """All published runs of an experiment by id."""
    file = lines_file(experiment)
    return _read(experiment, file, stamp(file)) if file.is_file() else {}


def experiments() -> list[str]:
    return sorted(file.stem for file in (paths.published() / "facts").glob("*.jsonl"))


def everything() -> list[Record]:
    """All published runs of all experiments."""
    return [record for experiment in experiments() for record in find(experiment).values()]


def lines_file(experiment: str) -> Path:
    return paths.published() / "facts" / f"{experiment}.jsonl"


def arrays_file(experiment: str) -> Path:
    return paths.published() / "facts" / f"{experiment}.safetensors"


def checkpoints_file(name: str) -> Path:
    """Of an experiment, or of one run."""
    return paths.published() / "checkpoints" / f"{name}.safetensors"


def content_hash(line: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Of all that a fact says."""
    digest = hashlib.sha256(json.dumps({name: line[name] for name in FIELDS}, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]))
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=64)
def _read(experiment: str, file: Path, _: tuple[int, ...]) -> dict[str, Record]:
    arrays = _arrays(experiment)
    records = {}
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = parse_json(text)
            name, own = line["id"], arrays.get(line["id"], {})
            if line["sha256"] != content_hash(line, own):
                raise ValueError(f"{name} does not match its hash")
            values = line | {"metrics": numbers(line["metrics"])}
            records[name] = Record(*(values[field] for field in FIELDS), own, _Published(experiment, name))
        except (ValueError, KeyError, TypeError) as error:
            where = f"{paths.relative(file)}, line {number}"
            raise ValueError(f"{where} is damaged ({error}): take the published files again (git checkout)") from error
    return records


def _arrays(experiment: str) -> dict[str, dict[str, np.ndarray]]:
    """By run and name."""
    file = arrays_file(experiment)
    flat: dict[str, np.ndarray] = {}
    try:
        if file.is_file():
            with safetensors.safe_open(file, "np") as opened:
                flat = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118, it is not a dict
                same = parse_json((opened.metadata() or {}).get("same", "{}"))
            flat |= {key: flat[first] for key, first in same.items()}
    except (safetensors.SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{paths.relative(file)} is damaged ({error}): take it again (git checkout)") from error
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, array in flat.items():
        name, _, rest = key.partition("/")
        found.setdefault(name, {})[rest] = array
    return found


@functools.lru_cache(maxsize=8)
def _checkpoints(file: Path, _: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """The opened file, and what it says of each of its checkpoints."""
    opened = safetensors.safe_open(checked(file), "pt")
    return opened, parse_json(opened.metadata()["about"])


@dataclasses.dataclass(frozen=True)
class _Published:
    """`sibrepro.facts.record.Files` of a published run."""

    experiment: str
    name: str

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        opened, about = self._find(name)
        prefix = f"{self.name}/{name}/"
        keys = {key: key for key in opened.keys() if key.startswith(prefix)}  # noqa: SIM118, it is not a dict
        keys |= about.get("same", {})
        return {key.removeprefix(prefix): opened.get_tensor(kept) for key, kept in keys.items()}, about["about"]

    def checkpoint_hash(self, name: str) -> str:
        return self._find(name)[1]["sha256"]

    def path(self, name: str) -> Path:
        path = checkpoints_file(self.name)
        if not path.is_file():
            raise FileNotFoundError(f"{self.name}: its {name} is not published; compute the run here to have it")
        return checked(path)

    def _find(self, name: str) -> tuple[Any, dict[str, Any]]:
        file = checkpoints_file(self.experiment)
        opened, known = _checkpoints(file, stamp(file)) if file.is_file() else (None, {})
        if f"{self.name}/{name}" not in known:
            raise FileNotFoundError(f"{self.name}: its checkpoint {name!r} is not published; compute the run here")
        return opened, known[f"{self.name}/{name}"]
