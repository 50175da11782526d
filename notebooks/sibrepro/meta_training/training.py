"""Runs that meta-train a SIB on episodes of features.

    sib few-shot --data cifar-fs --backbone conv4-64 --shots 1 5 --K 0 1 3 5

A training that was stopped continues from its last checkpoint, and a finished one is loaded. Runs that differ only in
K, eta and seed are meta-trained together, which is faster. Each run gets the result of training it alone.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibcore import fingerprint, train
from sibcore.datasets.base import ImageSet, cache_folder
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.files import key_of, parse_json, put_weights, write_atomically
from sibcore.sib import SIB
from sibcore.vision.features import Features
from sibrepro.facts import Experiment, Inputs, Numbers, Record, local
from sibrepro.facts.record import as_dict
from sibrepro.meta_training.banks import Banks, banks_of, numbers, tasks
from sibrepro.meta_training.settings import OLDEST, SPELLING, FewShot

CHECKPOINTS = {"best": train.BEST, "last": train.LAST}
BLOCK = "block.json"  # The file in a folder of the cache that lists which runs are trained together there.
Block = list[list[FewShot]]  # Runs that are trained together: a row for each seed, all rows with the same K and eta.
History = list[dict[str, Any]]  # The rows that `sibcore.train` writes during a training.


def few_shot(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> Record:
    """Meta-train a SIB, or load the finished run. Its checkpoints "best" and "last" hold the trained SIB.

    Args:
        p: the settings.
        data: the image set; by default it is loaded by its name, if images are needed.
        network: the file of the feature network; by default it is pretrained, if it is needed.
    """
    return FEW_SHOT.run(_on(p, data), data=data, network=network)


def compute(p: FewShot, banks: Banks, folder: Path) -> Numbers:
    """Meta-train, and test both checkpoints ("best" by validation, and "last") on one and on five shots.

    Returns:
        metrics: accuracies in percent, such as "best/1shot", each with a "..._ci95"; the best "validation" accuracy.
        arrays: the number of correctly answered queries of each test task, such as "best/1shot"; the training history
            as "step", "loss", "accuracy" and "validation".
    """
    return results(p, folder, banks, _meta_train([[p]], banks, folder)[0][0])


def together(settings: Sequence[FewShot], data: ImageSet | None = None, network: Path | None = None) -> list[Record]:
    """Return the run of each meta-training, in the given order. Train those together that have not run yet.

    Args:
        settings: the settings of the runs.
        data: the image set, as for `few_shot`.
        network: the file of the feature network, as for `few_shot`.
    """
    settings = [_on(p, data) for p in settings]
    origins = {p: banks_of(p, data, network) for p in settings}

    def todo() -> dict[FewShot, Inputs]:
        """Return the settings that have not run yet, with what they are computed from."""
        return {p: origin for p, origin in origins.items() if not FEW_SHOT.is_done(p, origin)}

    for block, origin in _stopped(todo()):
        _train_block(block, origin)
    for block in blocks([*todo()]):
        first, *others = _flat(block)
        if others:
            _train_block(block, origins[first])
    return [few_shot(p, data, network) for p in settings]


def _on(p: FewShot, data: ImageSet | None) -> FewShot:
    """Return the settings with the name of these images. The name of a user's own images depends on their content."""
    return dataclasses.replace(p, dataset=data.name) if data else p


def trained_sib(record: Record, checkpoint: str = "best") -> SIB:
    """Load the SIB from a checkpoint of a few-shot run, "best" or "last"."""
    tensors, about = record.files.checkpoint(checkpoint)
    model = SIB.from_setup(about["model"])
    put_weights(model, tensors)
    return model.to(pick_device())


def trained_with(
    p: FewShot, trained: Record | None = None, data: ImageSet | None = None, network: Path | None = None
) -> Inputs:
    """Return the inputs of a test of a trained SIB: its checkpoint "best" and the features it was trained on.

    Args:
        p: the settings of the few-shot run that trained it.
        trained: that run; by default the published one. If there is none, it is trained on this machine.
        data: the image set, as for `few_shot`.
        network: the file of the feature network, as for `few_shot`.
    """
    trained = trained or FEW_SHOT.published(p) or few_shot(p, data, network)
    origin = banks_of(p, data, network)
    hashes = origin.hashes | {"trained": trained.files.checkpoint_hash("best")}
    return Inputs(hashes, lambda: (trained_sib(trained), origin.load()))


def results(p: FewShot, folder: Path, banks: Banks, history: History) -> Numbers:
    """Test the checkpoints in a meta-training's folder, and return its metrics and arrays (see `compute`)."""
    device, bank, scores = pick_device(), banks["test"], {}
    for shots in sorted({1, 5, p.shots}):
        # If classes have too few images for another number of shots, that test is left out. If they have too few for
        # p.shots itself, the sampler raises an error.
        if shots != p.shots and bank.labels.bincount().min() < shots + p.queries:
            continue
        fixed = tasks(dataclasses.replace(p, shots=shots), bank, "test").to(device)
        for name, file in CHECKPOINTS.items():
            trained, _ = train.load_sib(folder / file)
            scores[f"{name}/{shots}shot"] = evaluate(trained.to(device), bank.features, fixed)
    metrics, arrays = numbers(scores, p.ways * p.queries)
    curves = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "accuracy", "validation")}
    return metrics | {"validation": 100 * curves["validation"].max().item()}, arrays | curves


def training_tasks(p: FewShot, bank: Features) -> EpisodeSampler:
    """Return the sampler of the training tasks."""
    options = {"alpha": p.alpha or None, "views": max(p.views, 1), "class_names": bank.classes}
    return EpisodeSampler(bank.labels.to(pick_device()), p.ways, p.shots, p.queries, p.seed, **options)


def untrained(p: FewShot, dim: int) -> SIB:
    """Return the SIB of a run before its training."""
    options = {name: getattr(p, name) or None for name in ("normalise", "reduction")}
    options |= {name: getattr(p, name) for name in ("fidelity", "transductive", "xi", "seed")}
    return SIB(p.ways, dim, p.K, p.eta, **options).to(pick_device())


def schedule(p: FewShot) -> train.Schedule:
    """Return the optimiser, learning rate, batch size and number of steps of a run."""
    return dataclasses.replace(train.SCHEDULES[p.optimiser or p.fidelity], steps=p.steps, batch=p.batch, lr=p.lr)


def _meta_train(block: Block, banks: Banks, folder: Path) -> list[list[History]]:
    """Train the SIBs of a block together and return their histories, arranged like the block.

    If the block is a single run, its checkpoints are in `folder`. Otherwise run e of row s has the folder `<s>-<e>`.
    """
    first, bank = block[0][0], banks["train"]
    features = bank.views.flatten(0, 1) if first.views else bank.features
    models = [[untrained(p, features.shape[1]) for p in row] for row in block]
    samplers = [training_tasks(row[0], bank) for row in block]
    alone = len(_flat(block)) == 1
    histories = train.train(
        models[0][0] if alone else models,
        features,
        samplers[0] if alone else samplers,
        schedule(first),
        validation=(banks["val"].features, tasks(first, banks["val"], "val").to(pick_device())),
        folder=folder,
        compile=any(p.K for p in block[0]) and first.steps >= 10_000,  # Compiling takes about a minute.
    )
    return [[histories]] if alone else histories


def blocks(settings: Sequence[FewShot]) -> list[Block]:
    """Group runs that can be trained together.

    The runs of a block differ only in K, eta and seed, and every seed has the same values of K and eta.
    """
    rows: dict[FewShot, list[FewShot]] = {}
    for p in sorted(settings, key=lambda p: (p.seed, p.K, p.eta)):
        rows.setdefault(dataclasses.replace(p, K=0, eta=1.0), []).append(p)
    found: dict[tuple[FewShot, ...], Block] = {}
    for row in rows.values():
        but_for_the_seed = tuple(dataclasses.replace(p, seed=0) for p in row)
        found.setdefault(but_for_the_seed, []).append(row)
    return list(found.values())


def _flat(block: Block) -> list[FewShot]:
    """Return the settings of all runs of a block in one list."""
    return [p for row in block for p in row]


def _train_block(block: Block, origin: Inputs) -> None:
    """Train a block in its folder of the cache and write its runs. A stopped block continues from its checkpoint."""
    folder = _folder(block, origin)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with local.lock(folder):
        if not all(FEW_SHOT.is_done(p, origin) for p in _flat(block)):
            _train_and_record(block, origin, folder)


def _train_and_record(block: Block, origin: Inputs, folder: Path) -> None:
    """Train a block in `folder`, write its runs, and remove the folder.

    The folder is removed last. If the process is killed before that, the next attempt finds the finished trainings.
    """
    runs = _flat(block)
    _, code = _begun(folder / BLOCK) or (block, FEW_SHOT.code)
    if code != FEW_SHOT.code:
        changes = fingerprint.listed(fingerprint.changed(code, FEW_SHOT.code))
        local.say(f"a stopped training of {len(runs)} models starts from the beginning: its code changed ({changes})")
        shutil.rmtree(folder)
    about = {"settings": [[as_dict(p) for p in row] for row in block], "code": FEW_SHOT.code}
    write_atomically(folder / BLOCK, json.dumps(about).encode())
    banks, began = origin.load(), time.perf_counter()
    histories = _meta_train(block, banks, folder)
    # The history also knows the time that a stopped attempt spent.
    seconds = max(time.perf_counter() - began, train.seconds(histories[0][0]))
    for s, row in enumerate(block):
        for e, p in enumerate(row):
            record = functools.partial(_take_over, folder / f"{s}-{e}", histories[s][e], banks, len(runs))
            FEW_SHOT.run(p, origin=origin, compute=record, spent=seconds / len(runs))
    (folder / BLOCK).unlink()  # First, so that a folder that is half removed is not taken for a stopped block.
    shutil.rmtree(folder)


def _take_over(trained: Path, history: History, banks: Banks, count: int, p: FewShot, folder: Path) -> Numbers:
    """Copy one run's checkpoints from its block's folder `trained` to its own, and return its metrics and arrays."""
    for file in CHECKPOINTS.values():
        write_atomically(folder / file, (trained / file).read_bytes())
    metrics, arrays = results(p, folder, banks, history)
    return metrics | {"trained_together": count}, arrays


def _stopped(todo: Mapping[FewShot, Inputs]) -> Iterator[tuple[Block, Inputs]]:
    """Yield the stopped blocks that have a run in `todo`, with what they are computed from.

    A stopped block continues as a whole. Its missing runs alone would form another block, without a checkpoint.
    """
    for file in sorted((cache_folder() / "stacks").glob(f"*/{BLOCK}")):
        begun = _begun(file)
        if begun is None:
            continue
        block, _ = begun
        origin = next((todo[p] for p in _flat(block) if p in todo), None)
        if origin and file.parent == _folder(block, origin):
            yield block, origin


def _begun(file: Path) -> tuple[Block, dict[str, str]] | None:
    """Return a stopped block and the code that it began with, or None if its file is missing or damaged."""
    try:
        about = parse_json(file.read_bytes())
        return [[FewShot(**p) for p in row] for row in about["settings"]], dict(about["code"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _folder(block: Block, origin: Inputs) -> Path:
    """Return the folder of a block in the cache. Its name depends only on the settings and the features."""
    made_of = [[as_dict(p) for p in _flat(block)], origin.hashes, FEW_SHOT.version]
    return cache_folder() / "stacks" / key_of(made_of)


# Rounding depends on the number of threads. Training amplifies it: accuracies moved by up to 0.13 points. Testing a
# trained model again hardly changes anything.
FEW_SHOT = Experiment(
    "few_shot",
    FewShot,
    compute,
    banks_of,
    keeps_files=True,
    oldest=OLDEST,
    spelling=SPELLING,
    tolerance={"trained_together": None, "*_ci95": 0.1, "*": 0.5},
    checkpoints=("best",),
    kept_here=("last/",),  # Only the means of the last checkpoint are published, as metrics.
)
