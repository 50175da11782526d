"""Run records: every number this project shows was computed by a run, and a run leaves a folder that says how.

    results/runs/<experiment>-<hash of the parameters>/
        params.json           the full parameters
        provenance.json       commit, seed, versions, device, code and data hashes, wall time
        metrics.json          the run's numbers
        arrays.safetensors    its arrays (curves, trajectories)
        ...                   what a long run leaves besides, such as a trained network
        done                  sha256 of each file above; written last, so a folder without it is not a result

`compute_or_load` is the one call: it returns the record if it is there and still valid, else computes it. Every file
is written atomically and a lock lets one process compute while others wait, so a crash, a `kill -9` or a second
process never leaves something that reads like a result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialize_arrays

from sibcore.files import sha256, write_atomically
from sibrepro import paths
from sibrepro.facts import manifest, provenance

DONE = "done"
ARRAYS = "arrays.safetensors"
SAID = r"^([\w.-]+-[0-9a-f]{12}): (?:computing|loaded)\b"  # how a run is named on stderr, for readers of the text
# The fields with which an experiment was first published: they are part of a run's name whatever their value.
_FEW_SHOT = (
    "K alpha backbone batch dataset epochs equivariant eta features fidelity lr normalise optimiser "
    "queries reduction seed shots steps test_episodes transductive val_episodes views ways"
).split()
_TOY = "K batch epochs eta lr mu mu_w n seed seeds sigma sigma_w tasks width".split()
OLDEST_FIELDS: dict[str, Sequence[str]] = {
    "adaptation": (
        "K alpha backbone batch dataset eta features held_out left_out lr method seed size steps target tasks "
        "test_batch test_order turn_weight turns"
    ).split(),
    "baseline": "backbone dataset features method queries shots test_episodes val_episodes ways".split(),
    "elbo_and_information_bottleneck": "dim letters n seed tasks weights worlds".split(),
    "pretrain": (
        "backbone batch dataset episodes epochs jitter momentum peak_lr scale seed warm_up weight_decay"
    ).split(),
    **dict.fromkeys(
        ("few_shot", "anatomy", "compression", "query_size", "query_size_rescaled", "realism", "recoding"), _FEW_SHOT
    ),
    **dict.fromkeys(("spinning_lines", "spinning_lines_bnn", "spinning_lines_optimum"), _TOY),
}
_computed_here: set[Path] = set()  # with SIB_FORCE a run is redone once per process, not once per call


@dataclasses.dataclass(frozen=True)
class Record:
    """A finished run, read back from its folder."""

    folder: Path
    params: dict[str, Any]
    provenance: dict[str, Any]
    metrics: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def id(self) -> str:
        return self.folder.name


def run_id(experiment: str, params: Any) -> str:
    """`<experiment>-<12 hex digits>`: the same parameters give the same name, in whatever order they are written."""
    return f"{experiment}-{hashlib.sha256(_canonical(identity(experiment, params)).encode()).hexdigest()[:12]}"


def identity(experiment: str, params: Any) -> dict[str, Any]:
    """What a run's name is made of: the experiment's oldest fields, and of all later ones those that are not default.

    So an option that is added to an experiment renames none of its runs.
    """
    values = as_dict(params)
    if not dataclasses.is_dataclass(params):
        return values
    default = {field.name: field.default for field in dataclasses.fields(params)}
    default |= {name: getattr(value, "default", value) for name, value in default.items()}  # pydantic's Field(...)
    first = OLDEST_FIELDS.get(experiment, ())
    return {name: value for name, value in values.items() if name in first or value != default[name]}


def compute_or_load(
    experiment: str,
    params: Any,
    compute: Callable[..., tuple[Mapping[str, Any], Mapping[str, np.ndarray]]],
    *,
    data: Mapping[str, str] | None = None,
    long: bool = False,
) -> Record:
    """The record of `compute(params) -> (metrics, arrays)`, from disk if it is there and valid.

    `params` is a (frozen) dataclass or a dict of plain values. A record is redone when the code that `compute` runs
    through changed (see `provenance.code_fingerprint`), when the hashes in `data` changed, when a file is damaged, or
    when the environment variable `SIB_FORCE` is set.

    `long` is for runs of hours: `compute(params, folder)` keeps its checkpoints in the run's folder and goes on from
    them, what it leaves there becomes part of the record, and a change of code alone does not redo it.
    """
    folder = paths.results() / "runs" / run_id(experiment, params)
    expected = {"code": provenance.code_fingerprint([compute.__module__]), "data": dict(data or {})}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        folder.mkdir(exist_ok=True)
        reason = _why_not(folder, expected, keep_stale=long)
        if reason:
            _say(f"{folder.name}: computing ({reason})")
            _compute(folder, params, functools.partial(compute, folder=folder) if long else compute, expected)
        else:
            _say(f"{folder.name}: loaded")
        record = load(folder)
    manifest.note("run", folder, how="computed" if reason else "loaded")
    return record


def is_done(experiment: str, params: Any, data: Mapping[str, str]) -> bool:
    """Whether `compute_or_load(..., long=True)` would load rather than compute."""
    folder = paths.results() / "runs" / run_id(experiment, params)
    return _why_not(folder, {"code": "", "data": dict(data)}, keep_stale=True) is None


def load(folder: Path) -> Record:
    """A finished run; every file is checked against the hash in `done`."""
    problem = _damage(folder)
    if problem:
        raise ValueError(f"{folder} is not a finished run: {problem}; delete the folder and run its notebook again")
    return Record(
        folder=folder,
        params=_read_json(folder / "params.json"),
        provenance=_read_json(folder / "provenance.json"),
        metrics=_read_json(folder / "metrics.json"),
        arrays=parse_arrays((folder / ARRAYS).read_bytes()),
    )


def find(experiment: str) -> list[Record]:
    """All finished runs of an experiment, in the order of their names."""
    return _finished(paths.results(), experiment)


def published(experiment: str) -> list[Record]:
    """As `find`, and besides those that came with the project, where results are written elsewhere (`SIB_OUTPUT`)."""
    places = (paths.root() / "results", paths.results())
    records = {record.id: record for place in places for record in _finished(place, experiment)}
    return [records[name] for name in sorted(records)]


def _finished(results: Path, experiment: str) -> list[Record]:
    folders = sorted((results / "runs").glob(f"{experiment}-*"))
    return [load(folder) for folder in folders if not _damage(folder)]


def as_dict(params: Any) -> dict[str, Any]:
    return dataclasses.asdict(params) if dataclasses.is_dataclass(params) else dict(params)


def _compute(folder: Path, params: Any, compute: Callable, expected: dict) -> None:
    finished = (folder / DONE).exists()
    (folder / DONE).unlink(missing_ok=True)  # first of all: nobody trusts a folder without it
    for file in folder.iterdir():
        if finished or file.suffix == ".tmp":  # a finished run starts anew, a stopped one goes on from its checkpoints
            file.unlink()
    started = time.perf_counter()
    try:
        metrics, arrays = compute(params)
        made = provenance.collect(as_dict(params), time.perf_counter() - started) | expected
        contents = {
            "params.json": _to_json(as_dict(params)),
            "provenance.json": _to_json(made),
            "metrics.json": _to_json(dict(metrics)),
            ARRAYS: serialize_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
        }
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()  # works only if empty: nothing came of it, so nothing stays
        raise
    for name, content in contents.items():
        write_atomically(folder / name, content)
    write_atomically(folder / DONE, _to_json(_hashes(folder)))
    _computed_here.add(folder)


def _why_not(folder: Path, expected: dict, keep_stale: bool) -> str | None:
    """Why the record in `folder` cannot be used as it is, or None if it can."""
    if not (folder / DONE).is_file():
        return "not done yet"
    problem = _damage(folder)
    if problem:
        return problem
    if os.environ.get("SIB_FORCE") and folder not in _computed_here:
        return "forced"
    recorded = _read_json(folder / "provenance.json")
    if recorded.get("data") != expected["data"]:
        return "its data changed"
    if recorded.get("code") != expected["code"] and not keep_stale:
        return "its code changed"
    return None


def _damage(folder: Path) -> str | None:
    if not (folder / DONE).is_file():
        return "there is no file `done`"
    try:
        recorded = _read_json(folder / DONE)
    except ValueError:
        return "the file `done` is unreadable"
    actual = _hashes(folder)
    wrong = sorted(name for name in recorded if recorded[name] != actual.get(name))
    return f"damaged: {', '.join(wrong)}" if wrong or not recorded else None


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.iterdir() if file.name != DONE and file.suffix != ".tmp")
    return {file.name: sha256(file) for file in files}


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock on `folder`. The operating system frees it when its holder dies, however it dies."""
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        _say(f"{folder.name}: another process is computing it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _to_json(value: Any) -> bytes:
    try:
        return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise ValueError("a number of this run is NaN or infinite, so no record is written") from error


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
