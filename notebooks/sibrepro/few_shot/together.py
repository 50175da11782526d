"""Many few-shot experiments at once: those that differ in K, eta and seed alone are meta-trained in one pass.

The records are those of `sibrepro.few_shot.experiment`, to rounding: `sibcore.train` trains each as if it were
alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibcore import train as meta
from sibcore.datasets.base import ImageSet, cache_folder
from sibcore.device import pick_device
from sibrepro.facts import runs
from sibrepro.few_shot import experiment as one
from sibrepro.few_shot.experiment import FewShot

Block = list[list[FewShot]]  # [S][E]: seeds, each with the same settings of K and eta


def few_shot(
    settings: Sequence[FewShot], data: ImageSet | None = None, network: Path | None = None
) -> list[runs.Record]:
    """The record of each experiment, in their order; what is not done yet is trained now, together where possible."""
    todo = [p for p in dict.fromkeys(settings) if not runs.is_done("few_shot", p, one.source(p, data, network).hashes)]
    for block in blocks(todo):
        if sum(map(len, block)) > 1 and _stackable(block[0][0]):
            _train_block(block, one.source(block[0][0], data, network))
    return [one.few_shot(p, data, network) for p in settings]


def blocks(settings: Sequence[FewShot]) -> list[Block]:
    """Experiments that can share a stack: alike in all but K, eta and seed, every seed with the same K and eta."""
    by_seed: dict[FewShot, dict[int, list[FewShot]]] = {}
    for p in settings:
        key = dataclasses.replace(p, K=0, eta=1.0, seed=0)
        by_seed.setdefault(key, {}).setdefault(p.seed, []).append(p)
    found: dict[Any, Block] = {}
    for key, seeds in by_seed.items():
        for seed in sorted(seeds):
            stream = sorted(seeds[seed], key=lambda p: (p.K, p.eta))
            found.setdefault((key, tuple((p.K, p.eta) for p in stream)), []).append(stream)
    return list(found.values())


def _stackable(p: FewShot) -> bool:
    """A stack has no noise, no KL term, no running statistics and the paper's xi."""
    return (p.fidelity, p.equivariant, p.views) == ("release", False, 0) and p.normalise != "running"


def _train_block(block: Block, origin: one.Source) -> None:
    """Train a stack in the cache folder, where it can go on, and write the record of each of its models."""
    first, banks = block[0][0], origin.banks()
    train, val = banks["train"], banks["val"]
    folder = cache_folder() / "stacks" / _name(block, origin)
    histories = meta.train(
        [[one.untrained(p, train.features.shape[1]) for p in stream] for stream in block],
        train.features,
        [one.training_tasks(stream[0], train) for stream in block],
        one.schedule(first),
        validation=(val.features, one.tasks(first, val, "val").to(pick_device())),
        folder=folder,
        compile=first.steps >= 10_000,
    )
    for s, stream in enumerate(block):
        for e, p in enumerate(stream):
            trained, history = folder / f"{s}-{e}", histories[s][e]

            def compute(
                p: FewShot, folder: Path, trained: Path = trained, history: list[dict[str, Any]] = history
            ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
                for file in one.CHECKPOINTS.values():
                    shutil.copy(trained / file, folder / file)
                metrics, arrays = one.results(p, folder, banks, history)
                return metrics | {"trained_together": sum(map(len, block))}, arrays

            runs.compute_or_load("few_shot", p, compute, data=origin.hashes, long=True)
    shutil.rmtree(folder)


def _name(block: Block, origin: one.Source) -> str:
    """The same settings and features give the same folder, so that a stopped training is found again."""
    what = [[runs.as_dict(p) for stream in block for p in stream], origin.hashes]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
