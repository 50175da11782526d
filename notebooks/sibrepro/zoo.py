"""`sib zoo`: write the trained models that come with `sibcore.zoo`, for maintainers.

The weights are checkpoints of published runs, in `sibcore/zoo/*.safetensors`. `sibcore/zoo/cards.json` has a card for
each model and network: what it is, what it was trained on, its accuracy, and the run that this comes from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sibcore import zoo
from sibcore.files import sha256, write_atomically, write_tensors
from sibcore.zoo import Card
from sibrepro import paths
from sibrepro.facts import Record, provenance, published
from sibrepro.facts.record import experiment_of
from sibrepro.studies.any_way.any_way import ANY_WAY, SET_AWARE

CIFAR, MINI = "CIFAR-FS, 64 training classes", "mini-ImageNet, 64 training classes"
# Weights learned from pictures are under the terms of these pictures, see docs/cards.md.
TERMS = {CIFAR: "as CIFAR-100 (none stated)", MINI: "as ImageNet (non-commercial)"}

# The name of each SIB, the published run that trained it, and what else its card says.
SIBS: dict[str, tuple[str, dict[str, str]]] = {
    zoo.ANY_WAY: (ANY_WAY.id(SET_AWARE), {"what": "SIB, set-aware xi", "ways": "any", "shots": "any"}),
    "equivariant-conv4-64": ("few_shot-a81b84a4ff8f", {"what": "SIB, equivariant xi", "ways": "5", "shots": "1"}),
    "5way-1shot-conv4-64": ("few_shot-b16a82e0018f", {"what": "SIB", "ways": "5", "shots": "1"}),
    "5way-5shot-conv4-64": ("few_shot-b4a737a1faa8", {"what": "SIB", "ways": "5", "shots": "5"}),
}
# The name of each network, the published run that pretrained it, and its image set.
NETWORKS: dict[str, tuple[str, str]] = {
    "conv4-64": ("pretrain-40e8d8a042c7", CIFAR),
    "conv4-128": ("pretrain-e10aa1fb3653", CIFAR),
    "wrn-16-2": ("pretrain-33055be948f5", CIFAR),
    "conv4-64-mini-imagenet": ("pretrain-1bb5f0f0eb68", MINI),
    "conv4-128-mini-imagenet": ("pretrain-98acb6990a73", MINI),
}
# The feature banks: the image set and the network of each, and the published run that pretrained the network.
BANKS: dict[str, tuple[str, str, str]] = {
    "cifar-fs-conv4-64": ("conv4-64", "pretrain-40e8d8a042c7", CIFAR),
}
# Networks with weights by others, which a package contains or downloads: what each is, and its licence.
IMAGENET = {
    "efficientnet-lite0": ("EfficientNet-Lite0", "Apache-2.0"),
    "resnet18": ("ResNet-18 (torchvision)", "BSD-3-Clause"),
}


def main(options: argparse.Namespace) -> int:
    """Write the models and print the names of the files."""
    for file in write():
        print(paths.relative(file))
    return 0


def cards() -> list[Card]:
    """Return the cards of all models and feature banks, made from the published runs and the files of weights."""
    return [*map(_sib, SIBS), *map(_network, NETWORKS), *map(_imagenet, IMAGENET), *map(_bank, BANKS)]


def write() -> list[Path]:
    """Write the weights, then the cards, which contain the weights' hashes; return the files."""
    written = []
    for name, (run, _) in SIBS.items():
        tensors, about = _record(run).files.checkpoint("best")
        kept = {"model": about["model"], "tasks": about["tasks"], "fact": run}
        path = zoo.HERE / f"{name}.safetensors"
        write_tensors(path, {key: tensor for key, tensor in tensors.items() if key.startswith("model.")}, kept)
        written.append(path)
    entries = [{key: value for key, value in vars(card).items() if value not in ("", None, 0)} for card in cards()]
    written.append(zoo.HERE / "cards.json")
    write_atomically(written[-1], (json.dumps(entries, indent=1, ensure_ascii=False) + "\n").encode())
    zoo.cards.cache_clear()
    return written


def _sib(name: str) -> Card:
    """Return the card of a SIB."""
    run, told = SIBS[name]
    record = _record(run)
    if name == zoo.ANY_WAY:
        metric = "photo/7way/1shot"
        tested_on = f"(PACS photos, 7 ways, 1 shot; K = 0: {record.metrics[f'{metric}/before']:.1f} %)"
    else:
        metric = f"best/{told['shots']}shot"
        tested_on = f"(CIFAR-FS test classes, {told['ways']} ways, {told['shots']} shot)"
    return Card(
        name=name,
        trained_on=CIFAR,
        licence=TERMS[CIFAR],
        network=record.params["backbone"],
        accuracy=record.metrics[metric],
        interval=record.metrics[f"{metric}_ci95"],
        tested_on=tested_on,
        fact=f"{run} {metric}",
        **told,
        **_file(zoo.HERE / f"{name}.safetensors"),
    )


def _network(name: str) -> Card:
    """Return the card of a network that a published run pretrained."""
    run, data = NETWORKS[name]
    record, file = _record(run), published.checkpoints_file(run)
    commit = provenance.git("log", "-1", "--format=%H", "--", str(file)) or ""
    return Card(
        name=name,
        what=f"network, {record.params['backbone']}",
        trained_on=data,
        licence=TERMS[data],
        network=name,
        accuracy=record.metrics["validation"],
        tested_on="(nearest class mean, validation classes, 5 ways, 1 shot)",
        fact=f"{run} validation",
        commit=commit,
        **_file(file),
    )


def _imagenet(name: str) -> Card:
    """Return the card of a network with weights by others."""
    what, licence = IMAGENET[name]
    return Card(name=name, what=f"network, {what}", trained_on="ImageNet", licence=licence, network=name)


def _bank(name: str) -> Card:
    """Return the card of a feature bank."""
    network, run, data = BANKS[name]
    file = paths.published() / "features" / f"{name}.safetensors"
    commit = provenance.git("log", "-1", "--format=%H", "--", str(file)) or ""
    about = {"trained_on": data, "licence": TERMS[data], "network": network, "fact": run, "commit": commit}
    return Card(name=name, what=zoo.BANK, **about, **_file(file))


def _record(run: str) -> Record:
    """Return the published run with this id."""
    return published.find(experiment_of(run))[run]


def _file(file: Path) -> dict[str, Any]:
    """Return what a card says of a file: where it is in the checkout, its hash and its size."""
    where = file.resolve().relative_to(paths.PACKAGE.parents[1]).as_posix()
    return {"file": where, "sha256": sha256(file), "bytes": file.stat().st_size}
