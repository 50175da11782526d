"""Few-shot experiments from pixels, or from the features that come with the project, to runs.

    sib few-shot --data cifar-fs --backbone conv4-64 --shots 1 5 --K 0 1 3 5

Pretraining and meta-training are long runs: stopped, they go on; finished, they are loaded. Experiments that differ in
K, eta and seed alone are meta-trained together, each as if it were alone.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibcore import __version__, datasets, train
from sibcore.datasets.base import ImageSet, cache_folder
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import Evaluation, evaluate
from sibcore.files import key_of, parse_json, put_weights, sha256, write_atomically
from sibcore.sib import SIB
from sibcore.vision import pretrain
from sibcore.vision.features import Features, feature_bank
from sibrepro.facts import Experiment, Record, local, published
from sibrepro.facts.record import as_dict
from sibrepro.few_shot import shipped
from sibrepro.few_shot.settings import ALPHA, FEW_SHOT, PRETRAIN, RIVAL, FewShot, Pretraining, Rival
from sibrepro.rivals import BASELINES, tune

SPLITS = ("train", "val", "test")
CHECKPOINTS = {"best": train.BEST, "last": train.LAST}
BLOCK = "block.json"  # which experiments a folder of the cache trains together
Banks = Mapping[str, Features]
Numbers = tuple[dict[str, Any], dict[str, np.ndarray]]  # metrics and arrays
Block = list[list[FewShot]]  # [S][E]: seeds, each with the same settings of K and eta


@dataclasses.dataclass(frozen=True)
class Source:
    """What a model learns from (here features by split), made when asked for, and the hashes of what it is made of."""

    hashes: dict[str, str]
    load: Callable[[], Any]


def source(p: Any, data: ImageSet | None = None, network: Path | None = None) -> Source:
    """Where the features of an experiment come from; `network` is pretrained now if there is no run of it."""
    if p.features == "shipped":
        about = shipped.about(p.dataset, p.backbone)
        hashes = {p.dataset: about["data"], "network": about["network"]}
        return Source(hashes, lambda: shipped.load(p.dataset, p.backbone))
    data = data or datasets.load(p.dataset)
    network = network or pretrained_network(
        data, p.backbone, **{name: getattr(p, name, None) for name in ("epochs", "rotation", "start")}
    )
    hashes = {data.name: data.sha256, "network": sha256(network)}
    views, averaged = getattr(p, "views", 0), getattr(p, "averaged", False)

    def bank(split: str) -> Features:
        return feature_bank(network, data, split, views if split == "train" else 0, averaged=averaged)

    return Source(hashes, lambda: {split: bank(split) for split in SPLITS})


# What differs from the recipe's defaults, by image set and network. 84 pixels on a CPU take bfloat16, and small images
# first; Conv-4-128 begins with the two layers that it has in common with Conv-4-64, and keeps the first as it is.
_QUICKER = {"small": 48, "precision": "bfloat16"}
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("cifar-fs", "conv4-128"): {
        "start": "pretrain-40e8d8a042c7",
        "frozen": 1,
        "epochs": 30,
        "small": 24,
        "small_epochs": 12,
    },
    ("cifar-fs", "wrn-16-2"): {"epochs": 40, "small": 24, "small_epochs": 16, "precision": "bfloat16"},
    ("mini-imagenet", "conv4-64"): {"epochs": 30, "small_epochs": 20, **_QUICKER},
    ("mini-imagenet", "conv4-128"): {
        "start": "pretrain-1bb5f0f0eb68",
        "frozen": 1,
        "epochs": 25,
        "small_epochs": 8,
        **_QUICKER,
    },
}


def pretrained_network(data: ImageSet, backbone: str, **changes: Any) -> Path:
    """The file of the network that experiments on `data` use; with changes that say something, one of those alone."""
    said = {name: value for name, value in changes.items() if value} or RECIPES.get((data.name, backbone), {})
    return pretrained(data, **{"backbone": backbone} | said).files.path(pretrain.BACKBONE)


def pretrained(data: ImageSet, **changes: Any) -> Record:
    """The run of a pretraining, with the network in its file `backbone.safetensors`; trained now if need be.

    `changes` are those to the recipe's defaults. metrics: the best epoch, its validation accuracy in percent, seconds
    """
    p = Pretraining(dataset=data.name, **changes)
    start = published.find(PRETRAIN.name)[p.start].files.path(pretrain.BACKBONE) if p.start else None
    hashes = {data.name: data.sha256} | ({"start": sha256(start)} if start else {})

    def compute(p: Pretraining, folder: Path) -> Numbers:
        recipe = pretrain.Recipe(
            **{field.name: getattr(p, field.name) for field in dataclasses.fields(pretrain.Recipe)}
        )
        about = pretrain.pretrain(data, recipe, folder, start=start)
        history = {name: np.array([row[name] for row in about["history"]]) for name in ("loss", "accuracy", "val")}
        best = pretrain.best_epoch(about["history"], recipe)
        validation = 100 * float(history["val"][best - 1])
        return {"best_epoch": best, "validation": validation, "seconds": about["seconds"]}, history

    return PRETRAIN.run(p, compute, data=hashes, long=True, state=pretrain.CHECKPOINT)


def few_shot(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> Record:
    """The run of one experiment, with the trained SIB in its checkpoints "best" and "last".

    Each checkpoint ("best" by validation, and "last") is tested on p.shots and on the other of one and five shots.
    metrics: accuracies in percent, such as "best/1shot", each with a "..._ci95"; the best "validation"
    arrays: such as "best/1shot", queries answered rightly in each test task; the history of the training
    """
    p, origin = _of(p, data), source(p, data, network)

    def compute(p: FewShot, folder: Path) -> Numbers:
        banks = origin.load()
        return results(p, folder, banks, _meta_train([[p]], banks, folder)[0][0])

    return FEW_SHOT.run(p, compute, data=origin.hashes, long=True)


def together(settings: Sequence[FewShot], data: ImageSet | None = None, network: Path | None = None) -> list[Record]:
    """The run of each experiment, in their order; what is not done yet is trained now, together where possible."""
    settings = [_of(p, data) for p in settings]
    origins = {p: source(p, data, network) for p in settings}

    def todo() -> dict[FewShot, Source]:
        return {p: origin for p, origin in origins.items() if not FEW_SHOT.is_done(p, origin.hashes)}

    for block, origin in _stopped(todo()):
        _train_block(block, origin)
    for block in blocks([*todo()]):
        if sum(map(len, block)) > 1:
            _train_block(block, origins[block[0][0]])
    return [few_shot(p, data, network) for p in settings]


def _of(p: FewShot, data: ImageSet | None) -> FewShot:
    """The experiment on these images: those of your own have a name made of their content."""
    return dataclasses.replace(p, dataset=data.name) if data else p


def trained_sib(record: Record, checkpoint: str = "best") -> SIB:
    """The SIB that a few-shot run trained."""
    tensors, about = record.files.checkpoint(checkpoint)
    model = SIB(**about["model"])
    put_weights(model, tensors)
    return model.to(pick_device())


def examine(
    experiment: Experiment, trained: Record, look: Callable[[SIB, Banks, FewShot], Numbers], **images: Any
) -> Record:
    """The run of looking in some way at the SIB (its best checkpoint) that a few-shot run trained."""
    p = FEW_SHOT.settings_of(trained)
    origin = source(p, **images)
    hashes = origin.hashes | {"trained": trained.files.checkpoint_hash("best")}
    return experiment.run(p, lambda p: look(trained_sib(trained), origin.load(), p), data=hashes)


def rival(p: Rival, **images: Any) -> Record:
    """The run of a rival method, on the very tasks that SIB is tested on.

    metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet queries), each with "..._ci95"; the chosen
    "options"; "episodes_per_second"; arrays: queries answered rightly in each task, "balanced" and "unbalanced"
    """
    if p.method not in BASELINES:
        raise ValueError(f"there is no method {p.method!r}: expected one of {', '.join(BASELINES)}")
    origin = source(p, **images)

    def compute(p: Rival) -> Numbers:
        banks, cls = origin.load(), BASELINES[p.method]
        chosen = tune(cls, p.ways, banks["val"].features, tasks(p, banks["val"], "val"))
        scores = {}
        for name, alpha in {"balanced": None, "unbalanced": ALPHA}.items():
            fixed, began = tasks(p, banks["test"], "test", alpha), time.perf_counter()
            scores[name] = evaluate(cls(p.ways, **chosen), banks["test"].features, fixed)
            speed = len(fixed) / (time.perf_counter() - began)
        metrics, arrays = numbers(scores, p.ways * p.queries)
        return metrics | {"options": chosen, "episodes_per_second": speed}, arrays

    return RIVAL.run(p, compute, data=origin.hashes)


def results(p: FewShot, folder: Path, banks: Banks, history: list[dict[str, Any]]) -> Numbers:
    """Metrics and arrays of a meta-training that has left its checkpoints in `folder`."""
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


def numbers(scores: Mapping[str, Evaluation], queries: int) -> Numbers:
    """For a record: accuracies in percent, each with its "..._ci95", and the right answers of each task."""
    metrics = {name: 100 * score.mean for name, score in scores.items()}
    metrics |= {f"{name}_ci95": 100 * score.interval for name, score in scores.items()}
    return metrics, {name: score.right(queries) for name, score in scores.items()}


def tasks(p: Any, bank: Features, split: str, alpha: float | None = None) -> Tasks:
    """The fixed tasks of a split, the same for every K, eta and seed of training; balanced, or Dirichlet(alpha)."""
    count = {"val": p.val_episodes, "test": p.test_episodes}[split]
    seed = 1_000_000 + SPLITS.index(split)  # far from any seed of training
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, alpha=alpha, class_names=bank.classes)
    return sampler.sample(0, count)


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


def _train_block(block: Block, origin: Source) -> None:
    """Train a block in the cache folder, where it can go on, and write the run of each of its models.

    The folder goes last: what is killed before starts from finished trainings. Each run's time is its share.
    """
    folder = _folder(block, origin)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with local.lock(folder):
        if not all(FEW_SHOT.is_done(p, origin.hashes) for stream in block for p in stream):
            _train_and_record(block, origin, folder)


def _train_and_record(block: Block, origin: Source, folder: Path) -> None:
    settings = [[as_dict(p) for p in stream] for stream in block]
    write_atomically(folder / BLOCK, json.dumps(settings).encode())
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
            compute = functools.partial(keep, trained=folder / f"{s}-{e}", history=histories[s][e])
            FEW_SHOT.run(p, compute, data=origin.hashes, long=True, spent=share)
    (folder / BLOCK).unlink()  # first: what is left of the folder is no stopped block
    shutil.rmtree(folder)


def _stopped(todo: Mapping[FewShot, Source]) -> Iterator[tuple[Block, Source]]:
    """Blocks that were begun, with some of what is to do; what is left of them alone would be another block."""
    for file in sorted((cache_folder() / "stacks").glob(f"*/{BLOCK}")):
        try:
            block = [[FewShot(**p) for p in stream] for stream in parse_json(file.read_bytes())]
        except (OSError, ValueError, TypeError):  # gone meanwhile, or damaged
            continue
        origin = next((todo[p] for stream in block for p in stream if p in todo), None)
        if origin and file.parent == _folder(block, origin):
            yield block, origin


def _folder(block: Block, origin: Source) -> Path:
    """The same settings, features and code give the same folder, so that a stopped training is found again."""
    what = [[as_dict(p) for stream in block for p in stream], origin.hashes, FEW_SHOT.version, __version__]
    return cache_folder() / "stacks" / key_of(what)
