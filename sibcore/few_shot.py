"""Few-shot experiments from pixels to a run record: features pretrained, SIB meta-trained, tested on new classes.

    python -m sibcore few-shot --data cifar-fs --backbone conv4-64 --shots 1 5 --K 0 1 3 5

Both stages are long runs of `sibcore.runs`: stopped, they go on; finished, they are loaded.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from sibcore import datasets, meta, pretrain, provenance, runs
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.features import Features, feature_bank
from sibcore.params import Count, NonNegative, Positive, parameters
from sibcore.sib import SIB

SPLITS = ("train", "val", "test")
RESULTS = {"best": meta.BEST, "last": meta.LAST}


@parameters
class Pretraining(pretrain.Recipe):
    """A recipe and the image set it is for."""

    dataset: str = Field("cifar-fs", description="name of the image set")


@parameters
class FewShot:
    """One cell of the paper's Table 1."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    ways: Count = Field(5, description="classes of a task, k")
    shots: Count = Field(1, description="labelled images per class")
    queries: Count = Field(15, description="unlabelled images per class")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    fidelity: Literal["release", "paper"] = Field("release", description="where text and release differ, which")
    transductive: bool = Field(True, description="False: true gradient on the support set (eq. maml)")
    views: NonNegative = Field(0, description="augmented views per training image; 0: images as they are")
    steps: Count = Field(40_000, description="meta-training steps")
    batch: Count = Field(8, description="tasks per step")
    val_episodes: Count = Field(1000, description="fixed tasks of validation classes")
    test_episodes: Count = Field(5000, description="tasks of test classes")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")


def pretrained(data: ImageSet, **changes: Any) -> runs.Record:
    """The record of a pretraining, whose folder holds the network, `backbone.safetensors`; trained now if need be.

    `changes` are those to the recipe's defaults. metrics: the best epoch, its validation accuracy in percent, seconds
    """

    def compute(p: Pretraining, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        recipe = pretrain.Recipe(**{name: value for name, value in runs.as_dict(p).items() if name != "dataset"})
        about = pretrain.pretrain(data, recipe, folder)
        (folder / pretrain.CHECKPOINT).unlink()  # the network stays; what a finished run would go on from need not
        history = {name: np.array([row[name] for row in about["history"]]) for name in ("loss", "accuracy", "val")}
        best = int(history["val"].argmax())
        metrics = {"best_epoch": best + 1, "validation": 100 * float(history["val"][best]), "seconds": about["seconds"]}
        return metrics, history

    p = Pretraining(dataset=data.name, **changes)
    return runs.compute_or_load("pretrain", p, compute, data={data.name: data.sha256}, long=True)


def few_shot(p: FewShot, data: ImageSet | None = None, network: Path | None = None) -> runs.Record:
    """The record of one experiment, whose folder also holds the trained SIB, `best.safetensors` and `last.safetensors`.

    metrics: accuracies in percent, "best/test" (by validation) and "last/test", each with a "..._ci95"
    arrays: "best/right" and "last/right", queries answered rightly in each test task; the history of the training
    """
    data = data or datasets.load(p.dataset)
    network = network or pretrained(data, backbone=p.backbone).folder / pretrain.BACKBONE

    def compute(p: FewShot, folder: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        return _meta_train_and_test(p, folder, data, network)

    hashes = {data.name: data.sha256, "network": provenance.sha256(network)}
    return runs.compute_or_load("few_shot", p, compute, data=hashes, long=True)


def tasks(p: FewShot, bank: Features, split: str) -> Tasks:
    """The fixed tasks of a split, the same for every K, eta and seed of training."""
    count = {"val": p.val_episodes, "test": p.test_episodes}[split]
    seed = 1_000_000 + SPLITS.index(split)  # far from any seed of training
    sampler = EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, class_names=bank.classes)
    return sampler.sample(0, count)


def _meta_train_and_test(
    p: FewShot, folder: Path, data: ImageSet, network: Path
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    banks = {split: feature_bank(network, data, split, p.views * (split == "train")) for split in SPLITS}
    train, device = banks["train"], pick_device()
    bank = train.views.flatten(0, 1) if p.views else train.features
    sampler = EpisodeSampler(
        train.labels.to(device), p.ways, p.shots, p.queries, p.seed, views=max(p.views, 1), class_names=train.classes
    )
    fixed = {split: (banks[split].features, tasks(p, banks[split], split).to(device)) for split in ("val", "test")}
    sib = SIB(p.ways, bank.shape[1], p.K, p.eta, fidelity=p.fidelity, transductive=p.transductive, seed=p.seed)
    history = meta.train(
        sib.to(device),
        bank,
        sampler,
        dataclasses.replace(meta.SCHEDULES[p.fidelity], steps=p.steps, batch=p.batch),
        validation=fixed["val"],
        folder=folder,
        compile=p.K > 0 and p.steps >= 10_000,  # compiling takes about a minute
    )
    metrics = {"validation": 100 * max(row["validation"] for row in history)}
    arrays = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "accuracy", "validation")}
    for name, file in RESULTS.items():
        trained, _ = meta.load_sib(folder / file)
        tested = meta.evaluate(trained.to(device), *fixed["test"])
        metrics |= {f"{name}/test": 100 * tested.mean, f"{name}/test_ci95": 100 * tested.interval}
        arrays[f"{name}/right"] = (tested.accuracies * p.ways * p.queries).round().to(torch.uint8).numpy()
    return metrics, arrays
