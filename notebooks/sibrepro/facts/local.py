"""Runs computed on this machine, each in a folder of its own.

    results/local/runs/<id>/
        params.json           the full parameters
        provenance.json       version, commit, seed, package versions, device, data hashes, wall time, fingerprint
        code.json             the hash of each module that the computation can reach (`sibcore.fingerprint`)
        metrics.json          the run's numbers
        arrays.safetensors    its arrays (curves, trajectories)
        ...                   other files of a long run, such as a trained network
        done                  the sha256 of each file above; written last, so a folder without it is not a result

A run is used again only if all its files are intact and if it was computed from the same data, by the same version of
its experiment and by the same code. Runs of `sib verify` are in `results/local/verified/`, which nothing else reads.

Every file is written atomically. A lock lets one process compute a run while others wait for it. So neither a crash,
nor `kill -9`, nor a second process leaves a folder that could be mistaken for a result. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from filelock import AcquireReturnProxy, FileLock, Timeout
from torch import Tensor

from sibcore import fingerprint
from sibcore.files import parse_json, read_tensors, sha256, write_atomically
from sibrepro import paths
from sibrepro.facts import provenance
from sibrepro.facts.record import Record, as_dict, numbers, plain

DONE = "done"
PARAMS = "params.json"
METRICS = "metrics.json"
PROVENANCE = "provenance.json"
CODE = "code.json"
ARRAYS = "arrays.safetensors"
SAID = r"^([\w.-]+-[0-9a-f]{12}): (?:computing|computed|loaded|kept|published)\b"  # finds ids in what `say` printed
UNKNOWN_CODE = "the code that computed it is not recorded"
Compute = Callable[..., tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]

_computed_here: set[Path] = set()  # with SIB_FORCE a run is redone once per process, not once per call


def say(message: str) -> None:
    """Print a progress message to stderr."""
    print(message, file=sys.stderr, flush=True)


def folder_of(name: str) -> Path:
    """Return the folder of the run with the id `name` on this machine, whether it exists or not."""
    return paths.local() / "runs" / name


def verified(name: str) -> Path:
    """Return the folder in which `sib verify` computes the run with the id `name`."""
    return paths.local() / "verified" / name


def recompute() -> bool:
    """Tell whether even published runs shall be computed here, because `SIB_RECOMPUTE` or `SIB_FORCE` is set."""
    return bool(os.environ.get("SIB_RECOMPUTE") or os.environ.get("SIB_FORCE"))


@dataclasses.dataclass(frozen=True)
class MadeOf:
    """What a run is computed from. A run that was computed from something else is not used again.

    Attributes:
        version: the version of its experiment.
        data: the hash of each data set by name.
        code: the hash of each module that the computation can reach.
    """

    version: int
    data: Mapping[str, str]
    code: fingerprint.Hashes

    @property
    def about(self) -> dict[str, Any]:
        """Return the entries that a run's provenance has about this."""
        return {"version": self.version, "data": dict(self.data), "fingerprint": fingerprint.digest(self.code)}


def load(folder: Path, made_of: MadeOf) -> Record | None:
    """Return the run in `folder`, or None if it is not intact or was computed from something else."""
    return None if why_not(folder, made_of) else read(folder)


def why_not(folder: Path, made_of: MadeOf) -> str | None:
    """Return why the run in `folder` cannot be used as it is, or None if it can."""
    if problem := _damage(folder):
        return problem
    if os.environ.get("SIB_FORCE") and folder not in _computed_here:
        return "forced"
    about = _read_json(folder / PROVENANCE)
    if about.get("data") != dict(made_of.data):
        return "its data changed"
    if about.get("version") != made_of.version:
        return "another version of the experiment computed it"
    if fingerprint.is_kept(folder.name):
        return None
    changes = code_changes(folder, made_of.code)
    return f"code changed: {fingerprint.listed(changes)}" if changes else None


def code_changes(folder: Path, now: fingerprint.Hashes) -> list[str]:
    """Return the modules that changed since the run in `folder` was begun."""
    begun_with = _code(folder)
    return fingerprint.changed(begun_with, now) if begun_with else [UNKNOWN_CODE]


def read(folder: Path) -> Record:
    """Return a finished run, after checking every file against the hashes in `done`."""
    if problem := _damage(folder):
        raise ValueError(f"{folder} is not a finished run ({problem}): delete the folder and run its notebook again")
    made = _read_json(folder / PROVENANCE)
    return Record(
        id=folder.name,
        version=made.pop("version", 0),
        params=_read_json(folder / PARAMS),
        metrics=numbers(_read_json(folder / METRICS)),
        provenance=made,
        arrays=safetensors.numpy.load_file(folder / ARRAYS),
        files=_Folder(folder),
    )


def compute(
    folder: Path, made_of: MadeOf, params: Any, function: Compute, spent: float = 0.0, state: str = ""
) -> Record:
    """Compute a run and store it. If several processes ask at once, one computes and the others wait for its result.

    Args:
        folder: the run's folder.
        made_of: the version, data and code that it is computed from.
        params: its settings.
        function: computes the metrics and arrays from `params`.
        spent: seconds of work done before, such as the run's share of a common training.
        state: a file in the folder from which a stopped run resumes. It is deleted when the run is done.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        reason = why_not(folder, made_of)
        if not reason:  # another process computed it while this one waited for the lock
            return read(folder)
        say(f"{folder.name}: computing ({reason})")
        made_of = _begin(folder, made_of)
        try:
            contents = _contents(params, function, made_of, spent)
        except BaseException:
            _clear(folder)
            raise
        for file, content in contents.items():
            write_atomically(folder / file, content)
        hashes = _hashes(folder)
        hashes.pop(state, None)
        write_atomically(folder / DONE, _to_json(hashes))
        if state:
            (folder / state).unlink(missing_ok=True)  # not before `done` is there: a run stopped here needs it
        _computed_here.add(folder)
        return read(folder)


def _begin(folder: Path, made_of: MadeOf) -> MadeOf:
    """Prepare a folder to compute in, and return what its run is computed from.

    A stopped run resumes from its checkpoints if it was begun with this version, data and code. Otherwise its files are
    deleted and it starts again. If the user asked by name to keep the run although code changed, it resumes all the
    same, and counts as a run of the code that it was begun with.
    """
    folder.mkdir(exist_ok=True)
    stopped = not (folder / DONE).exists()
    code = _code(folder)
    if stopped and code and fingerprint.is_kept(folder.name):
        made_of = dataclasses.replace(made_of, code=code)
    resumes = stopped and made_of.about.items() <= _dict_in(folder / PROVENANCE).items()
    (folder / DONE).unlink(missing_ok=True)  # before anything else, so that a folder that changes is not a result
    for file in folder.iterdir():
        if (not resumes or file.suffix == ".tmp") and (file.is_symlink() or not file.is_dir()):
            file.unlink()
    write_atomically(folder / CODE, _to_json(made_of.code))
    write_atomically(folder / PROVENANCE, _to_json(made_of.about))  # says what the checkpoints are computed from
    return made_of


def _clear(folder: Path) -> None:
    """Delete the folder of a run that failed, if the run left nothing that it could resume from."""
    with contextlib.suppress(OSError):
        if {file.name for file in folder.iterdir()} <= {PROVENANCE, CODE}:
            (folder / PROVENANCE).unlink(missing_ok=True)
            (folder / CODE).unlink(missing_ok=True)
            folder.rmdir()


def _code(folder: Path) -> fingerprint.Hashes:
    """Return the hashes of the modules that a run was begun with, none if that is not known."""
    return _dict_in(folder / CODE)


def _contents(params: Any, function: Compute, made_of: MadeOf, spent: float) -> dict[str, bytes]:
    """Compute a run and return the contents of its files by name."""
    started = time.perf_counter()
    metrics, arrays = function(params)
    seconds = spent + time.perf_counter() - started
    return {
        PARAMS: _to_json(as_dict(params)),
        PROVENANCE: _to_json(provenance.collect(as_dict(params), seconds) | made_of.about),
        METRICS: _to_json(plain(metrics)),
        ARRAYS: safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
    }


def _damage(folder: Path) -> str | None:
    """Return what is wrong with the files of a run, or None if it is finished and intact."""
    if not (folder / DONE).is_file():
        return "not done yet"
    try:
        recorded = dict(_read_json(folder / DONE))
        actual = _hashes(folder)
    except (OSError, ValueError, TypeError):
        return "the file `done` is unreadable"
    wrong = sorted(name for name in recorded if recorded[name] != actual.get(name))
    return f"damaged: {', '.join(wrong)}" if wrong or not recorded else None


def _hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a run by name."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != DONE and file.suffix != ".tmp")
    return {file.name: sha256(file) for file in files}


@dataclasses.dataclass(frozen=True)
class _Folder:
    """The `sibrepro.facts.record.Files` of a run of this machine, where every checkpoint is a file."""

    folder: Path

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors of a checkpoint, and its description."""
        return read_tensors(self.path(f"{name}.safetensors"))

    def checkpoint_hash(self, name: str) -> str:
        """Return the sha256 of a checkpoint's file."""
        return sha256(self.path(f"{name}.safetensors"))

    def path(self, name: str) -> Path:
        """Return where a file of the run is."""
        return self.folder / name


def lock(folder: Path) -> AcquireReturnProxy:
    """Acquire the lock on `folder`, waiting for it if need be, and return it for use in a `with` statement.

    The operating system releases the lock if the process that holds it dies.
    """
    held = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        return held.acquire(blocking=False)
    except Timeout:
        say(f"{folder.name}: another process is computing it; waiting")
        return held.acquire()


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _read_json(path: Path) -> Any:
    return parse_json(path.read_text(encoding="utf-8"))


def _dict_in(path: Path) -> dict[str, Any]:
    """Return the dictionary in a JSON file, an empty one if the file is missing or damaged."""
    try:
        return dict(_read_json(path))
    except (OSError, ValueError, TypeError):
        return {}
