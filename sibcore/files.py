"""Files that are whole or not there, and tensors with a description beside them.

A checkpoint is a safetensors file: no pickle. Its header holds `about`, plain values that say what the tensors are.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)  # mkstemp makes it private, but results are for sharing
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_of(tensors: Iterable[Tensor]) -> str:
    """A hash of all their numbers."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """A safetensors file with `about` in its header."""
    content = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(content, {"about": json.dumps(about)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
            return tensors, json.loads(file.metadata()["about"])
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run what made it again") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def put_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})


def check_same(path: Path, about: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """A checkpoint's `about` has what is `asked` for now, or it is another run's."""
    for name, value in asked.items():
        if about[name] != value:
            raise ValueError(
                f"{path} belongs to another run: its {name} is {about[name]}, but now {value} is asked for; "
                "choose another folder, or delete this one to start again"
            )
