"""Kill every stage of the project, in the middle of a write or at any moment, and start it again.

Started again, a stage has to end with the same numbers, to the last bit, as if it had not been killed.
"""

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
from unittest import mock

import numpy as np
import tiny_notebooks
import torch
from adaptation_domains import domains
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
from sibrepro.studies.pacs.rotations import extract

SMALL = FewShot(dataset="noise", queries=5, steps=4, batch=2, val_episodes=5, test_episodes=5)
NOT_COMPARED = ("steps_per_second", "seconds")  # differ each time
TRAINED = (train.BEST, train.LAST, BACKBONE)


def rounds(world: World, table: Table, seed: int) -> Iterator[None]:
    """Kill one stage after another, for ever; every step of the iterator is one attempt.

    Args:
        world: the scratch folder.
        table: where the results go.
        seed: of the moments of the kills.
    """
    stages = {name: Stage(world, work) for name, work in works(world).items()}
    for number, (name, stage) in enumerate(itertools.cycle(stages.items()), 1):
        kills = 1  # which `attempt` counts, also if it breaks
        with table.attempt("kill", name, f"kill {number} of seed {seed}"):
            kills = stage.kill(random.Random(f"{seed} {number}"))
        table.add("kill", name, kills - 1, [])
        yield


class Stage:
    """Work that leaves files behind, from which it goes on when it is started again.

    Attributes:
        world: where it works.
        work: does the work and returns what it computed.
        expected: the digest of what it computes if it is not killed; "" before that is known.
        writes, seconds: how many atomic writes and how long that takes.
    """

    def __init__(self, world: World, work: Callable[[], object]) -> None:
        self.world, self.work, self.expected = world, work, ""

    def undisturbed(self) -> None:
        """Work without a kill, to learn what comes out, in how many writes and how long."""
        began = time.monotonic()
        # Every atomic write calls fsync once.
        with mock.patch.object(os, "fsync") as fsync, self.world.scratch():
            self.expected = digest(self.work())
        self.writes, self.seconds = max(fsync.call_count, 1), time.monotonic() - began

    def kill(self, moment: random.Random) -> int:
        """Kill it, sometimes twice, and start it again.

        Returns:
            How many kills there were: work may end before its kill.
        """
        if not self.expected:
            self.undisturbed()
        with self.world.scratch():
            wanted, kills = moment.choice([1, 1, 2]), 0
            for _ in range(2 * wanted):  # some attempts come too late to kill anything
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
    """Return the stages of the project by name, at the smallest sizes.

    Each is a function that returns everything that it computed, so that `digest` can tell if anything differs.
    """
    pair = [dataclasses.replace(SMALL, K=K) for K in (0, 1)]
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    adaptation, bank = Adaptation(target="sketch", steps=3, batch=4, features="frozen"), domains()

    def extraction() -> object:
        banks = [feature_bank(world.network, world.few_shot, split).sha256 for split in ("train", "test")]
        cache = datasets.base.cache_folder()
        return [*banks, extract(network, world.domains, "pooled", "features", torch.device("cpu"), cache)]

    def sweep() -> object:
        notebook = tiny_notebooks.write(world.folder, tiny_notebooks.COMPUTE.replace("{folder!r}", "'/tmp'"))
        point = Point("tiny", Notebook.read(notebook), {"a": 3}, ("a",))
        attempt(point, paths.local(), slots=1)
        return [result.metrics for result in read_all(point.folder()).values()]

    return {
        "decoding": lambda: datasets.load("folder", source=world.pictures, size=8).sha256,
        "pretraining": lambda: pretrained(world.images, epochs=2, batch=60, episodes=2),
        "extraction": extraction,
        "meta-training": lambda: few_shot(SMALL, world.few_shot, world.network),
        "stacked training": lambda: together(pair, world.few_shot, world.network),
        "PACS": lambda: adapt(adaptation, Inputs({}, lambda: (bank, torch.nn.Identity()))),
        "sweep": sweep,
        "publish": lambda: publish(world),
    }


def publish(world: World) -> object:
    """Publish two runs, then a newer version of the second, and return what is published."""

    def compute(p: Settings, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        write_tensors(folder / "best.safetensors", {"w": torch.full((2,), float(p.n))}, {"model": p.n})
        return {"answer": float(p.n)}, {"curve": np.arange(p.n + 3)}

    for version, n in ((1, 1), (1, 2), (2, 2)):
        newer = computing(world.experiment, compute, version=version, keeps_files=True)
        with environment(SIB_RECOMPUTE="1"):  # an earlier attempt may have published it already
            made = local.read(local.folder_of(newer.run(Settings(n)).id))
        facts.add(newer, [dataclasses.replace(made, provenance={}, arrays={"curve": np.arange(n + version)})])
    record = newer.published(Settings(2))
    return [record, record.files.checkpoint("best"), newer.published(Settings(1))]


def digest(value: object) -> str:
    """Return a hash of everything that a stage computed, to the last bit.

    Args:
        value: numbers, texts, tensors, arrays and records, also in lists and dictionaries. Times and speeds in them do
            not count.
    """
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> object:
    """Return a value as JSON can have it, with hashes in place of arrays."""
    if isinstance(value, Record):
        trained = [value.files.folder / name for name in TRAINED] if hasattr(value.files, "folder") else []
        tensors = [read_tensors(path)[0] for path in trained if path.is_file()]
        return _plain([value.params, value.metrics, dict(value.arrays), tensors])
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items() if name not in NOT_COMPARED}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value)).hexdigest()]
    return value
