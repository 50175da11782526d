"""A scratch folder with everything that the probe needs: pictures, features, networks, runs, all of them tiny."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tiny_images import few_shot_set, plain, png, tiny_set, untrained_network, write_files

from sibcore.datasets.base import ImageSet, Index, image_set
from sibrepro.facts import Experiment, local


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 1


def compute(p: Settings) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    return {"answer": float(p.n)}, {}


class World:
    """`with World() as world`: SIB_OUTPUT, SIB_CACHE and SIB_HOME are its folders."""

    def __enter__(self) -> World:
        torch.set_num_threads(1)  # a process with threads cannot be forked safely
        self._stack = contextlib.ExitStack()
        memory = Path("/dev/shm")  # where there is such a thing: the probe is about order, not about disks
        where = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-", dir=where)))
        self.folder.chmod(0o755)
        self._stack.enter_context(environment(SIB_DATA=str(self.folder / "data"), SIB_DEVICE="cpu"))
        self._stack.enter_context(self.place(self.folder))
        local.provenance.git = lambda *arguments: "" if "status" in arguments else "c" * 40
        self.images = tiny_set()
        self.few_shot = few_shot_set()
        self.domains = domain_set()
        self.network = untrained_network(self.folder / "network.safetensors", 16)
        self.pictures = write_files(self.folder / "pictures", pictures())
        self.experiment = Experiment("made_up", Settings, compute, oldest=("n",), checkpoints=("best",))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def place(self, folder: Path, **others: str) -> contextlib.AbstractContextManager[None]:
        """Compute inside `folder`."""
        names = {"SIB_OUTPUT": "output", "SIB_CACHE": "cache", "SIB_HOME": "home"}
        return environment(**{name: str(folder / part) for name, part in names.items()} | others)

    def scratch(self) -> contextlib.AbstractContextManager[str]:
        return tempfile.TemporaryDirectory(dir=self.folder)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def pictures() -> dict[str, bytes]:
    """A folder of class folders, with its splits."""
    files = {f"{label}/{i}.png": png(plain(i)) for label in ("cat", "dog", "hen") for i in range(3)}
    return files | {"splits.yaml": b"train: [cat]\nval: [dog]\ntest: [hen]\n"}


def domain_set() -> ImageSet:
    """Two domains of two classes, 32 pixels: the least that a network with ImageNet's weights takes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (16, 32, 32, 3), generator=generator, dtype=torch.uint8).numpy()
    labels, domains = [i % 2 for i in range(16)], [i // 8 for i in range(16)]
    index = Index(labels, ("dog", "cat"), {"all": ("dog", "cat")}, domains, ("photo", "sketch"))
    return image_set("domains", pixels, index)
