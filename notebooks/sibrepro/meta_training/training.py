"""Meta-training of SIB on episodes of features, as runs.

    sib few-shot --data cifar-fs --backbone conv4-64 --shots 1 5 --K 0 1 3 5

Trainings are long runs: stopped, they go on; finished, they are loaded. Those that differ in K, eta and seed alone are
meta-trained together, each as if it were alone.
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
from sibrepro.meta_training.settings import OLDEST, FewShot

CHECKPOINTS = {"best": train.BEST, "last": train.LAST}
BLOCK = "block.json"  # which experiments a folder of the cache trains together
Block = list[list[FewShot]]  # [S][E]: seeds, each with the same settings of K and eta


def few_shot(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> Record:
    """Return the run of one meta-training, with the trained SIB in its checkpoints "best" and "last"."""
    return FEW_SHOT.run(_of(p, data), data=data, network=network)


def compute(p: FewShot, banks: Banks, folder: Path) -> Numbers:
    """Meta-train, and test both checkpoints ("best" by validation, and "last") on one and on five shots.

    Returns:
        metrics: accuracies in percent, such as "best/1shot", each with a "..._ci95"; the best "validation".
        arrays: such as "best/1shot", queries answered rightly in each test task; the history of the training.
    """
    return results(p, folder, banks, _meta_train([[p]], banks, folder)[0][0])


def together(settings: Sequence[FewShot], data: ImageSet | None = None, network: Path | None = None) -> list[Record]:
    """Return the run of each experiment, in their order; what is not done yet is trained now, together if possible."""
    settings = [_of(p, data) for p in settings]
    origins = {p: banks_of(p, data, network) for p in settings}

    def todo() -> dict[FewShot, Inputs]:
        return {p: origin for p, origin in origins.items() if not FEW_SHOT.is_done(p, origin)}

    for block, origin in _stopped(todo()):
        _train_block(block, origin)
    for block in blocks([*todo()]):
        if sum(map(len, block)) > 1:
            _train_block(block, origins[block[0][0]])
    return [few_shot(p, data, network) for p in settings]


def _of(p: FewShot, data: ImageSet | None) -> FewShot:
    """Return the experiment on these images: those of your own have a name made of their content."""
    return dataclasses.replace(p, dataset=data.name) if data else p


def trained_sib(record: Record, checkpoint: str = "best") -> SIB:
    """Return the SIB that a few-shot run trained."""
    tensors, about = record.files.checkpoint(checkpoint)
    model = SIB(**about["model"])
    put_weights(model, tensors)
    return model.to(pick_device())


def trained_with(
    p: FewShot, trained: Record | None = None, data: ImageSet | None = None, network: Path | None = None
) -> Inputs:
    """Return the SIB (its best checkpoint) that the few-shot run of `p` trained, and the features it was trained on.

    It is the published run, or the run of this machine, unless a record is given.
    """
    trained = trained or FEW_SHOT.published(p) or few_shot(p, data, network)
    origin = banks_of(p, data, network)
    hashes = origin.hashes | {"trained": trained.files.checkpoint_hash("best")}
    return Inputs(hashes, lambda: (trained_sib(trained), origin.load()))


def results(p: FewShot, folder: Path, banks: Banks, history: list[dict[str, Any]]) -> Numbers:
    """Return the metrics and arrays of a meta-training that has left its checkpoints in `folder`."""
    device, bank, scores = pick_device(), banks["test"], {}
    for shots in sorted({1, 5, p.shots}):
        if shots != p.shots and bank.labels.bincount().min() < shots + p.queries:
            continue  # no second test for want of images; with p.shots itself the sampler says what is wrong
        fixed = tasks(dataclasses.replace(p, shots=shots), bank, "test").to(device)
        for name, file in CHECKPOINTS.items():
            trained, _ = train.load_sib(folder / file)
            scores[f"{name}/{shots}shot"] = evaluate(trained.to(device), bank.features, fixed)
    metrics, arrays = numbers(scores, p.ways * p.queries)
    curves = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "accuracy", "validation")}
    return metrics | {"validation": 100 * max(row["validation"] for row in history)}, arrays | curves


def training_tasks(p: FewShot, bank: Features) -> EpisodeSampler:
    """The stream of tasks to learn from."""
    options = {"alpha": p.alpha or None, "views": max(p.views, 1), "class_names": bank.classes}
    return EpisodeSampler(bank.labels.to(pick_device()), p.ways, p.shots, p.queries, p.seed, **options)


def untrained(p: FewShot, dim: int) -> SIB:
    """The model of an experiment before its training."""
    options = {name: getattr(p, name) or None for name in ("normalise", "reduction")}
    options |= {name: getattr(p, name) for name in ("fidelity", "transductive", "equivariant", "seed")}
    return SIB(p.ways, dim, p.K, p.eta, **options).to(pick_device())


def schedule(p: FewShot) -> train.Schedule:
    return dataclasses.replace(train.SCHEDULES[p.optimiser or p.fidelity], steps=p.steps, batch=p.batch, lr=p.lr)


def _meta_train(block: Block, banks: Banks, folder: Path) -> list[list[list[dict[str, Any]]]]:
    """Train the models of a block in one pass; histories [S][E]. A folder of one run holds that run's own files."""
    first, bank = block[0][0], banks["train"]
    features = bank.views.flatten(0, 1) if first.views else bank.features
    models = [[untrained(p, features.shape[1]) for p in stream] for stream in block]
    samplers = [training_tasks(stream[0], bank) for stream in block]
    alone = sum(map(len, block)) == 1
    histories = train.train(
        models[0][0] if alone else models,
        features,
        samplers[0] if alone else samplers,
        schedule(first),
        validation=(banks["val"].features, tasks(first, banks["val"], "val").to(pick_device())),
        folder=folder,
        compile=any(p.K for p in block[0]) and first.steps >= 10_000,  # compiling takes about a minute
    )
    return [[histories]] if alone else histories


def blocks(settings: Sequence[FewShot]) -> list[Block]:
    """Experiments that can be trained together: alike in all but K, eta and seed, each seed with the same K and eta."""
    streams: dict[FewShot, list[FewShot]] = {}
    for p in sorted(settings, key=lambda p: (p.seed, p.K, p.eta)):
        streams.setdefault(dataclasses.replace(p, K=0, eta=1.0), []).append(p)
    found: dict[tuple[FewShot, ...], Block] = {}
    for stream in streams.values():
        found.setdefault(tuple(dataclasses.replace(p, seed=0) for p in stream), []).append(stream)
    return list(found.values())


def _train_block(block: Block, origin: Inputs) -> None:
    """Train a block in the cache folder, where it can go on, and write the run of each of its models.

    The folder goes last: what is killed before starts from finished trainings. Each run's time is its share.
    """
    folder = _folder(block, origin)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with local.lock(folder):
        if not all(FEW_SHOT.is_done(p, origin) for stream in block for p in stream):
            _train_and_record(block, origin, folder)


def _train_and_record(block: Block, origin: Inputs, folder: Path) -> None:
    begun = _begun(folder / BLOCK)
    if begun and begun["code"] != FEW_SHOT.code:
        changes = fingerprint.listed(fingerprint.changed(begun["code"], FEW_SHOT.code))
        local.say(f"a stopped training of {sum(map(len, block))} models starts again (code changed: {changes})")
        shutil.rmtree(folder)
    about = {"settings": [[as_dict(p) for p in stream] for stream in block], "code": FEW_SHOT.code}
    write_atomically(folder / BLOCK, json.dumps(about).encode())
    banks, count, began = origin.load(), sum(map(len, block)), time.perf_counter()
    histories = _meta_train(block, banks, folder)
    share = max(time.perf_counter() - began, train.seconds(histories[0][0])) / count  # part of it may be long ago

    def keep(p: FewShot, folder: Path, trained: Path, history: list[dict[str, Any]]) -> Numbers:
        for file in CHECKPOINTS.values():
            write_atomically(folder / file, (trained / file).read_bytes())
        metrics, arrays = results(p, folder, banks, history)
        return metrics | {"trained_together": count}, arrays

    for s, stream in enumerate(block):
        for e, p in enumerate(stream):
            kept = functools.partial(keep, trained=folder / f"{s}-{e}", history=histories[s][e])
            FEW_SHOT.run(p, origin=origin, compute=kept, spent=share)
    (folder / BLOCK).unlink()  # first: what is left of the folder is no stopped block
    shutil.rmtree(folder)


def _stopped(todo: Mapping[FewShot, Inputs]) -> Iterator[tuple[Block, Inputs]]:
    """Yield blocks that were begun, with some of what is to do; the rest of them alone would be another block."""
    for file in sorted((cache_folder() / "stacks").glob(f"*/{BLOCK}")):
        begun = _begun(file)
        if begun is None:
            continue
        block = begun["block"]
        origin = next((todo[p] for stream in block for p in stream if p in todo), None)
        if origin and file.parent == _folder(block, origin):
            yield block, origin


def _begun(file: Path) -> dict[str, Any] | None:
    """Return the experiments ("block") and the "code" of a training that was begun; None if it is gone or damaged."""
    try:
        about = parse_json(file.read_bytes())
        block = [[FewShot(**p) for p in stream] for stream in about["settings"]]
        return {"block": block, "code": dict(about["code"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _folder(block: Block, origin: Inputs) -> Path:
    """Return the folder of a block: the same for the same settings and features, so that it is found again."""
    what = [[as_dict(p) for stream in block for p in stream], origin.hashes, FEW_SHOT.version]
    return cache_folder() / "stacks" / key_of(what)


# A training computed again with another number of threads was seen to move accuracies by up to 0.13 points; a trained
# model tested again, hardly at all.
FEW_SHOT = Experiment(
    "few_shot",
    FewShot,
    compute,
    banks_of,
    keeps_files=True,
    oldest=OLDEST,
    tolerance={"trained_together": None, "*_ci95": 0.1, "*": 0.5},
    checkpoints=("best",),
    kept_here=("last/",),  # answers of the last checkpoint: their means are among the metrics
)
