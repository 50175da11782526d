"""Few-shot experiments from pixels, or from the features that come with the project, to a run record.

    sib few-shot --data cifar-fs --backbone conv4-64 --shots 1 5 --K 0 1 3 5

Pretraining and meta-training are long runs of `sibrepro.facts.runs`: stopped, they go on; finished, they are loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from sibcore import datasets
from sibcore import train as meta
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import evaluate
from sibcore.files import sha256
from sibcore.sib import SIB
from sibcore.vision import pretrain
from sibcore.vision.features import Features, feature_bank
from sibrepro.facts import runs
from sibrepro.few_shot import shipped
from sibrepro.params import Count, NonNegative, Positive, parameters

SPLITS = ("train", "val", "test")
CHECKPOINTS = {"best": meta.BEST, "last": meta.LAST}


@parameters
class Pretraining(pretrain.Recipe):
    """A recipe and the image set it is for."""

    dataset: str = Field("cifar-fs", description="name of the image set")


@parameters
class FewShot:
    """One cell of the paper's Table 1."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Literal["images", "shipped"] = Field("images", description="computed from images, or the project's own")
    epochs: NonNegative = Field(
        0, description="of pretraining, of a network from images; 0: as many as its recipe says"
    )
    views: NonNegative = Field(0, description="augmented views per training image; 0: images as they are")
    ways: Count = Field(5, description="classes of a task, k")
    shots: Count = Field(1, description="labelled images per class")
    queries: Count = Field(15, description="unlabelled images per class")
    alpha: Annotated[float, Field(ge=0)] = Field(0.0, description="Dirichlet spread of training queries; 0: balanced")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    fidelity: Literal["release", "paper"] = Field("release", description="where text and release differ, which")
    optimiser: Literal["", "release", "paper"] = Field("", description="of the outer loop; empty: as fidelity says")
    normalise: Literal["", "task", "running", "none"] = Field("", description="inside xi; empty: as fidelity says")
    reduction: Literal["", "sum", "mean"] = Field("", description="over queries; empty: as fidelity says")
    transductive: bool = Field(True, description="False: true gradient on the support set (eq. maml)")
    equivariant: bool = Field(False, description="True: a xi that treats all classes alike")
    steps: Count = Field(40_000, description="meta-training steps")
    batch: Count = Field(8, description="tasks per step")
    lr: Positive = Field(1e-3, description="learning rate of the outer loop; the release ties eta to it")
    val_episodes: Count = Field(1000, description="fixed tasks of validation classes")
    test_episodes: Count = Field(5000, description="tasks of test classes")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")


@dataclasses.dataclass(frozen=True)
class Source:
    """Features by split, made when asked for, and the hashes of what they are made of."""

    hashes: dict[str, str]
    banks: Callable[[], Mapping[str, Features]]


def source(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> Source:
    """Where the features of an experiment come from; `network` is pretrained now if there is no record of it."""
    if p.features == "shipped":
        about = shipped.about(p.dataset, p.backbone)
        hashes = {p.dataset: about["data"], "network": about["network"]}
        return Source(hashes, lambda: shipped.load(p.dataset, p.backbone))
    data = data or datasets.load(p.dataset)
    changes = {"epochs": p.epochs} if p.epochs else {}
    network = network or pretrained(data, backbone=p.backbone, **changes).folder / pretrain.BACKBONE
    hashes = {data.name: data.sha256, "network": sha256(network)}
    return Source(hashes, lambda: {s: feature_bank(network, data, s, p.views * (s == "train")) for s in SPLITS})


def pretrained(data: ImageSet, **changes: Any) -> runs.Record:
    """The record of a pretraining, whose folder holds the network, `backbone.safetensors`; trained now if need be.

    `changes` are those to the recipe's defaults. metrics: the best epoch, its validation accuracy in percent, seconds
    """

    def compute(p: Pretraining, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        recipe = pretrain.Recipe(**{name: value for name, value in runs.as_dict(p).items() if name != "dataset"})
        about = pretrain.pretrain(data, recipe, folder)
        (folder / pretrain.CHECKPOINT).unlink()  # the network stays; what a finished run would go on from need not
        history = {name: np.array([row[name] for row in about["history"]]) for name in ("loss", "accuracy", "val")}
        best = pretrain.best_epoch(about["history"], recipe)
        validation = 100 * float(history["val"][best - 1])
        metrics = {"best_epoch": best, "validation": validation, "seconds": about["seconds"]}
        return metrics, history

    p = Pretraining(dataset=data.name, **changes)
    return runs.compute_or_load("pretrain", p, compute, data={data.name: data.sha256}, long=True)


def few_shot(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> runs.Record:
    """The record of one experiment, whose folder also holds the trained SIB, `best.safetensors` and `last.safetensors`.

    Each checkpoint ("best" by validation, and "last") is tested on p.shots and on the other of one and five shots.
    metrics: accuracies in percent, such as "best/1shot", each with a "..._ci95"; the best "validation"
    arrays: such as "best/1shot", queries answered rightly in each test task; the history of the training
    """
    origin = source(p, data, network)

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        banks = origin.banks()
        history = _meta_train(p, folder, banks)
        return results(p, folder, banks, history)

    return runs.compute_or_load("few_shot", p, compute, data=origin.hashes, long=True)


def results(
    p: FewShot, folder: Path, banks: Mapping[str, Features], history: list[dict[str, Any]]
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Metrics and arrays of a meta-training that has left its checkpoints in `folder`."""
    device = pick_device()
    metrics = {"validation": 100 * max(row["validation"] for row in history)}
    arrays = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "accuracy", "validation")}
    bank = banks["test"]
    for shots in sorted({1, 5, p.shots}):
        if shots != p.shots and bank.labels.bincount().min() < shots + p.queries:
            continue  # no second test for want of images; with p.shots itself the sampler says what is wrong
        fixed = tasks(dataclasses.replace(p, shots=shots), bank, "test").to(device)
        for name, file in CHECKPOINTS.items():
            trained, _ = meta.load_sib(folder / file)
            tested = evaluate(trained.to(device), bank.features, fixed)
            metrics |= {f"{name}/{shots}shot": 100 * tested.mean, f"{name}/{shots}shot_ci95": 100 * tested.interval}
            arrays[f"{name}/{shots}shot"] = tested.right(p.ways * p.queries)
    return metrics, arrays


def tasks(p: FewShot, bank: Features, split: str, alpha: float | None = None) -> Tasks:
    """The fixed tasks of a split, the same for every K, eta and seed of training; balanced, or Dirichlet(alpha)."""
    count = {"val": p.val_episodes, "test": p.test_episodes}[split]
    seed = 1_000_000 + SPLITS.index(split)  # far from any seed of training
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, alpha=alpha, class_names=bank.classes)
    return sampler.sample(0, count)


def training_tasks(p: FewShot, bank: Features) -> EpisodeSampler:
    """The stream of tasks to learn from."""
    return EpisodeSampler(
        bank.labels.to(pick_device()),
        p.ways,
        p.shots,
        p.queries,
        p.seed,
        alpha=p.alpha or None,
        views=max(p.views, 1),
        class_names=bank.classes,
    )


def untrained(p: FewShot, dim: int) -> SIB:
    """The model of an experiment before its training."""
    names = ("eta", "fidelity", "transductive", "equivariant", "seed")
    return SIB(
        p.ways,
        dim,
        p.K,
        normalise=p.normalise or None,
        reduction=p.reduction or None,
        **{name: getattr(p, name) for name in names},
    ).to(pick_device())


def schedule(p: FewShot) -> meta.Schedule:
    return dataclasses.replace(meta.SCHEDULES[p.optimiser or p.fidelity], steps=p.steps, batch=p.batch, lr=p.lr)


def _meta_train(p: FewShot, folder: Path, banks: Mapping[str, Features]) -> list[dict[str, Any]]:
    train, val = banks["train"], banks["val"]
    bank = train.views.flatten(0, 1) if p.views else train.features
    return meta.train(
        untrained(p, bank.shape[1]),
        bank,
        training_tasks(p, train),
        schedule(p),
        validation=(val.features, tasks(p, val, "val").to(pick_device())),
        folder=folder,
        compile=p.K > 0 and p.steps >= 10_000,  # compiling takes about a minute
    )
