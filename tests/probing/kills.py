"""Kill every stage, in the middle of a write or at any moment; started again, it ends in the same bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tiny_notebooks
import torch
from killing import killed_after, killed_at_write
from made_up import computing
from probing.table import Table
from probing.world import Settings, World, environment

from sibcore import datasets, train
from sibcore.files import read_tensors, write_tensors
from sibcore.vision.features import feature_bank
from sibcore.vision.pretrain import BACKBONE
from sibrepro import paths
from sibrepro.facts import Inputs, Record, local
from sibrepro.facts import publish as facts
from sibrepro.meta_training.pretraining import pretrained
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot, together
from sibrepro.run.notebook import Notebook
from sibrepro.run.sweep.point import Point, attempt, read_all
from sibrepro.studies.pacs.experiment import Adaptation, adapt
from sibrepro.studies.pacs.rotations import Rotations, extract

SMALL = FewShot(dataset="noise", queries=5, steps=4, batch=2, val_episodes=5, test_episodes=5)
NOT_OURS = ("steps_per_second", "seconds")  # of the machine
TRAINED = (train.BEST, train.LAST, BACKBONE)


def rounds(world: World, table: Table, seed: int) -> Iterator[None]:
    """One kill of one stage after another, for ever."""
    stages = {name: Stage(world, work) for name, work in works(world).items()}
    number = 0
    while True:
        for name, stage in stages.items():
            number += 1
            moment = random.Random(f"{seed} {number}")
            kills = 1
            with table.attempt("kill", name, f"kill {number} of seed {seed}"):
                kills = stage.kill(moment)
            table.add("kill", name, kills - 1, [])
            yield


class Stage:
    """Work that leaves something behind, and what it ends in if nobody disturbs it."""

    def __init__(self, world: World, work: Callable[[], object]) -> None:
        self.world, self.work, self.expected = world, work, ""

    def undisturbed(self) -> None:
        """What it ends in, in how many writes and seconds."""
        began, fsync, count = time.monotonic(), os.fsync, itertools.count()
        os.fsync = lambda handle: next(count)
        try:
            with self.world.scratch() as folder, self.world.place(Path(folder)):
                self.expected = digest(self.work())
        finally:
            os.fsync = fsync
        self.writes, self.seconds = max(next(count), 1), time.monotonic() - began

    def kill(self, moment: random.Random) -> int:
        """Kill it, sometimes twice, and start it again; how many kills there were."""
        if not self.expected:
            self.undisturbed()
        with self.world.scratch() as folder, self.world.place(Path(folder)):
            wanted, kills = moment.choice([1, 1, 2]), 0
            for _ in range(2 * wanted):
                if moment.random() < 0.7:
                    kills += killed_at_write(moment.randint(1, self.writes), self.work)
                else:
                    kills += killed_after(moment.uniform(0, self.seconds), self.work)
                if kills == wanted:
                    break
            if digest(self.work()) != self.expected:
                raise AssertionError("it ended in other numbers than without a kill")
        return kills


def works(world: World) -> dict[str, Callable[[], object]]:
    """The stages; each gives back all that it computed."""
    pair = [dataclasses.replace(SMALL, K=K) for K in (0, 1)]
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    bank = Rotations(
        torch.randn(4, 64, 8, generator=torch.Generator().manual_seed(0)),
        torch.arange(64) % 2,
        torch.arange(64) // 16,
        ("dog", "cat"),
        ("art", "cartoon", "photo", "sketch"),
        {},
    )
    adaptation = Adaptation(target="sketch", steps=3, batch=4, features="frozen")

    def sweep() -> object:
        notebook = tiny_notebooks.write(world.folder, tiny_notebooks.COMPUTE.replace("{folder!r}", "'/tmp'"))
        point = Point("tiny", Notebook.read(notebook), {"a": 3}, ("a",))
        attempt(point, paths.local(), slots=1)
        return [result.metrics for result in read_all(point.folder()).values()]

    return {
        "decoding": lambda: datasets.load("folder", source=world.pictures, size=8).sha256,
        "pretraining": lambda: pretrained(world.images, epochs=2, batch=60, episodes=2),
        "extraction": lambda: [
            *(feature_bank(world.network, world.few_shot, split).sha256 for split in ("train", "test")),
            extract(network, world.domains, "pooled", "features", torch.device("cpu"), datasets.base.cache_folder()),
        ],
        "meta-training": lambda: few_shot(SMALL, world.few_shot, world.network),
        "stacked training": lambda: together(pair, world.few_shot, world.network),
        "PACS": lambda: adapt(adaptation, Inputs({}, lambda: (bank, torch.nn.Identity()))),
        "sweep": sweep,
        "publish": lambda: publish(world),
    }


def publish(world: World) -> object:
    """Two runs published, then a newer one in the place of the second; every published file."""

    def compute(p: Settings, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        write_tensors(folder / "best.safetensors", {"w": torch.full((2,), float(p.n))}, {"model": p.n})
        return {"answer": float(p.n)}, {"curve": np.arange(p.n + 3)}

    for version in (1, 2):
        newer = computing(world.experiment, compute, version=version, keeps_files=True)
        for n in (1, 2)[version - 1 :]:
            with environment(SIB_RECOMPUTE="1"):  # computed here, also what an earlier attempt has published
                made = local.read(local.folder_of(newer.run(Settings(n)).id))
            facts.add(newer, [dataclasses.replace(made, provenance={}, arrays={"curve": np.arange(n + version)})])
    record = newer.published(Settings(2))
    return [record, record.files.checkpoint("best"), newer.published(Settings(1))]


def digest(value: object) -> str:
    """Of numbers and tensors, whatever they lie in, apart from times."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Record):
        trained = [value.files.folder / name for name in TRAINED] if hasattr(value.files, "folder") else []
        tensors = [read_tensors(path)[0] for path in trained if path.is_file()]
        return [_plain(value.params), _plain(value.metrics), _plain(dict(value.arrays)), _plain(tensors)]
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items() if name not in NOT_OURS}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value)).hexdigest()]
    return value
