"""Files that are either whole or not there, and checkpoints: tensors with a description beside them.

A checkpoint is a safetensors file, never a pickle, so reading one runs no code. The file's header holds `about`, plain
values that say what the tensors are.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file such that a reader, or a crash at any moment, sees the old content or the new one, never a part.

    Folders on the way are made. The umask decides who may read the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:
            error.filename = str(path)  # the error of a full disk names no file
        raise


def parse_json(text: str | bytes) -> Any:
    """Parse JSON as `json.loads` does, but raise a ValueError also where brackets are nested by the thousand."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def sha256(path: Path) -> str:
    """Return the sha256 of a file as 64 hex digits, without reading the whole file into memory."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def key_of(what: Any) -> str:
    """Return twelve hex digits that stand for plain values, to name a file that depends on them."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def hash_of(tensors: Iterable[Tensor]) -> str:
    """Return the sha256 of all numbers in the tensors, one tensor after another; shapes do not count."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write a safetensors file.

    Args:
        path: where it goes; folders on the way are made.
        tensors: tensors of any shape by name.
        about: plain values that describe them, kept as JSON in the file's header.
    """
    write_atomically(path, pack(tensors, about))


def pack(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """Return the bytes that `write_tensors` writes."""
    content = {name: tensor.contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(content, {"about": json.dumps(about)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file that `write_tensors` wrote.

    Returns:
        The tensors by name, and `about`.

    Raises:
        ValueError: if the file is damaged.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
            return tensors, parse_json(file.metadata()["about"])
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run what made it again") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers under the names that they have in a checkpoint."""
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def put_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put the tensors of a checkpoint that `weights_of` named back into a model; other tensors may be among them."""
    load_weights(model, {name: tensors.get(f"model.{name}") for name in model.state_dict()})


def load_weights(model: nn.Module, weights: Mapping[str, Tensor | None]) -> None:
    """Load parameters and buffers. Raise a ValueError that names any that is missing, unknown or of another shape."""
    wanted = model.state_dict()
    wrong = [name for name in wanted if getattr(weights.get(name), "shape", None) != wanted[name].shape]
    wrong += sorted(weights.keys() - wanted.keys())
    if wrong:
        raise ValueError(f"these are not the weights of this model: {', '.join(wrong[:3])} do not fit")
    model.load_state_dict(weights)


def check_same(path: Path, about: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a checkpoint belongs to the run that is asked for now.

    Args:
        path: the checkpoint, for the error message.
        about: the description in the checkpoint.
        asked: values of the run, which have to be the same in `about`.
    """
    for name, value in asked.items():
        if about.get(name) != value:
            raise ValueError(
                f"{path} belongs to another run: its {name} is {about.get(name)}, but now {value} is asked for; "
                "choose another folder, or delete this one to start again"
            )
