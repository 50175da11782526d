"""A scratch folder with everything that the probe needs: tiny image sets, a network, an experiment."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from tiny_images import few_shot_set, plain, png, tiny_set, untrained_network, write_files

from sibcore.datasets.base import ImageSet, Index, image_set
from sibrepro.facts import Experiment, local


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a made-up run."""

    n: int = 1


def compute(p: Settings) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compute a made-up run."""
    return {"answer": float(p.n)}, {}


class World:
    """The scratch folder and what it contains. Use it as `with World() as world`.

    Inside the block everything that the project computes goes to folders of its own in there.
    """

    def __enter__(self) -> World:
        torch.set_num_threads(1)  # a process with threads cannot be forked safely
        self._stack = contextlib.ExitStack()
        # In memory where that is possible: the probe is about the order of writes, which is the same there.
        memory = "/dev/shm"
        where = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-", dir=where)))
        self.folder.chmod(0o755)
        self._stack.enter_context(environment(SIB_DATA=str(self.folder / "data"), SIB_DEVICE="cpu"))
        self._stack.enter_context(self.place(self.folder))
        # The scratch folder is no repository: pretend that it has a clean commit.
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

    def place(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        """Let everything that is computed inside this block go to `folder`."""
        return environment(
            SIB_OUTPUT=str(folder / "output"), SIB_CACHE=str(folder / "cache"), SIB_HOME=str(folder / "home")
        )

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Let everything that is computed inside this block go to a folder that is removed afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name, self.place(Path(name)):
            Path(name).chmod(0o755)  # so that other users can read it
            yield Path(name)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables inside a block."""
    with mock.patch.dict(os.environ, values):
        yield


def pictures() -> dict[str, bytes]:
    """Return the files of an image set that is a folder for each class, with its splits."""
    files = {f"{label}/{i}.png": png(plain(i)) for label in ("cat", "dog", "hen") for i in range(3)}
    return files | {"splits.yaml": b"train: [cat]\nval: [dog]\ntest: [hen]\n"}


def domain_set() -> ImageSet:
    """Return an image set of two domains and two classes, of 32 pixels, the least that a pretrained network takes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (16, 32, 32, 3), generator=generator, dtype=torch.uint8).numpy()
    labels, domains = [i % 2 for i in range(16)], [i // 8 for i in range(16)]
    index = Index(labels, ("dog", "cat"), {"all": ("dog", "cat")}, domains, ("photo", "sketch"))
    return image_set("domains", pixels, index)
