"""Runs computed on this machine, a folder each.

    results/local/runs/<id>/
        params.json           the full parameters
        provenance.json       version, commit, seed, package versions, device, data hashes, wall time, fingerprint
        code.json             the hash of each module that the computation can reach (`sibcore.fingerprint`)
        metrics.json          the run's numbers
        arrays.safetensors    its arrays (curves, trajectories)
        ...                   what a long run leaves besides, such as a trained network
        done                  sha256 of each file above; written last, so a folder without it is not a result

A run is used again only if it is whole and was made of the same data, by the same version of its experiment and by the
same code. Runs that `sib verify` computes lie in `results/local/verified/` instead, which nothing else reads.

Every file is written atomically and a lock lets one process compute while others wait, so a crash, a `kill -9` or a
second process never leaves something that reads like a result. Reading needs no lock.
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
PROVENANCE = "provenance.json"
CODE = "code.json"
ARRAYS = "arrays.safetensors"
SAID = r"^([\w.-]+-[0-9a-f]{12}): (?:computing|computed|loaded|kept|published)\b"  # how a run is named on stderr
_computed_here: set[Path] = set()  # with SIB_FORCE a run is redone once per process, not once per call
UNKNOWN_CODE = "which code made it is not known"
Compute = Callable[..., tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def folder_of(name: str) -> Path:
    """Return where the run `name` of this machine is, or would be."""
    return paths.local() / "runs" / name


def verified(name: str) -> Path:
    """Return where `sib verify` computes the run `name`."""
    return paths.local() / "verified" / name


def recompute() -> bool:
    """Whether runs that are published are to be computed here all the same: `SIB_RECOMPUTE` or `SIB_FORCE` is set."""
    return bool(os.environ.get("SIB_RECOMPUTE") or os.environ.get("SIB_FORCE"))


@dataclasses.dataclass(frozen=True)
class MadeOf:
    """What a run is made of; one that was made of something else is not used again."""

    version: int
    data: Mapping[str, str]
    code: fingerprint.Hashes

    @property
    def about(self) -> dict[str, Any]:
        """What a run's provenance says of it."""
        return {"version": self.version, "data": dict(self.data), "fingerprint": fingerprint.digest(self.code)}


def load(folder: Path, made_of: MadeOf) -> Record | None:
    """Return the run in `folder`, or None if there is none that is whole and made of the same."""
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
        return "it is of another version of the experiment"
    if fingerprint.is_kept(folder.name):
        return None
    changes = code_changes(folder, made_of.code)
    return f"code changed: {fingerprint.listed(changes)}" if changes else None


def code_changes(folder: Path, now: fingerprint.Hashes) -> list[str]:
    """Return the modules that changed since the run in `folder` was begun."""
    return fingerprint.changed(_code(folder), now) if _code(folder) else [UNKNOWN_CODE]


def read(folder: Path) -> Record:
    """Return a finished run; every file is checked against the hash in `done`."""
    if problem := _damage(folder):
        raise ValueError(f"{folder} is not a finished run: {problem}; delete the folder and run its notebook again")
    params, made, metrics = (_read_json(folder / f"{name}.json") for name in ("params", "provenance", "metrics"))
    arrays = safetensors.numpy.load_file(folder / ARRAYS)
    return Record(folder.name, made.pop("version", 0), params, numbers(metrics), made, arrays, _Folder(folder))


def compute(
    folder: Path, made_of: MadeOf, params: Any, function: Compute, spent: float = 0.0, state: str = ""
) -> Record:
    """Compute a run and keep it; of several processes that ask at once, one computes and the others wait for it.

    Args:
        folder: where the run goes.
        made_of: the version, data and code it is made of.
        params: its parameters.
        function: computes metrics and arrays from `params`.
        spent: seconds of work done before, such as a share of a common training.
        state: a file in the folder that only a stopped run needs; it goes when the run is done.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        if reason := why_not(folder, made_of):
            say(f"{folder.name}: computing ({reason})")
            made_of = _begin(folder, made_of)
            try:
                contents = _contents(params, function, made_of, spent)
            except BaseException:
                if not {file.name for file in folder.iterdir()} - {PROVENANCE, CODE}:  # nothing came of it
                    with contextlib.suppress(OSError):
                        for name in (PROVENANCE, CODE):
                            (folder / name).unlink(missing_ok=True)
                        folder.rmdir()
                raise
            for file, content in contents.items():
                write_atomically(folder / file, content)
            hashes = _hashes(folder)
            hashes.pop(state, None)
            write_atomically(folder / DONE, _to_json(hashes))
            if state:
                (folder / state).unlink(missing_ok=True)  # only now: until then a stopped run needs it
            _computed_here.add(folder)
        return read(folder)


def _begin(folder: Path, made_of: MadeOf) -> MadeOf:
    """Make a folder to compute in, and return what its run will be made of.

    A stopped run goes on from its checkpoints if it was begun with this version, data and code; any other starts anew.
    One that is kept by name although its code changed goes on, and stays a run of the code that it was begun with.
    """
    folder.mkdir(exist_ok=True)
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):  # it was not begun, or does not say of what
        begun = dict(_read_json(folder / PROVENANCE))
    stopped = not (folder / DONE).exists()
    if stopped and _code(folder) and fingerprint.is_kept(folder.name):
        made_of = dataclasses.replace(made_of, code=_code(folder))
    goes_on = stopped and made_of.about.items() <= begun.items()
    (folder / DONE).unlink(missing_ok=True)  # first of all: nobody trusts a folder without it
    for file in folder.iterdir():
        if (not goes_on or file.suffix == ".tmp") and (file.is_symlink() or not file.is_dir()):
            file.unlink()
    write_atomically(folder / CODE, _to_json(made_of.code))
    write_atomically(folder / PROVENANCE, _to_json(made_of.about))  # what checkpoints in this folder are of
    return made_of


def _code(folder: Path) -> fingerprint.Hashes:
    """Return the hashes of the modules that a run was begun with; of one that does not say, none."""
    try:
        return dict(_read_json(folder / CODE))
    except (OSError, ValueError, TypeError):
        return {}


def _contents(params: Any, function: Compute, made_of: MadeOf, spent: float) -> dict[str, bytes]:
    """The files of a run, computed now."""
    started = time.perf_counter()
    metrics, arrays = function(params)
    seconds = spent + time.perf_counter() - started
    return {
        "params.json": _to_json(as_dict(params)),
        PROVENANCE: _to_json(provenance.collect(as_dict(params), seconds) | made_of.about),
        "metrics.json": _to_json(plain(metrics)),
        ARRAYS: safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
    }


def _damage(folder: Path) -> str | None:
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
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != DONE and file.suffix != ".tmp")
    return {file.name: sha256(file) for file in files}


@dataclasses.dataclass(frozen=True)
class _Folder:
    """`sibrepro.facts.record.Files` of a run of this machine: a file each."""

    folder: Path

    def checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return read_tensors(self.path(f"{name}.safetensors"))

    def checkpoint_hash(self, name: str) -> str:
        return sha256(self.path(f"{name}.safetensors"))

    def path(self, name: str) -> Path:
        return self.folder / name


def lock(folder: Path) -> AcquireReturnProxy:
    """The lock on `folder`, for a `with`. The operating system frees it when its holder dies, however it dies."""
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
