"""Stage 1 on PACS as runs: a network fine-tuned on some domains, and what it then says of every image.

    first_stage(FineTuned(without="sketch", turned=6))          the target is sketch, with rotation: "Rot"
    first_stage(FineTuned(without="cartoon+sketch"))            photo and art alone: its errors on cartoon are those of
                                                                an unseen domain, and cartoon's labels may be used

Labels of the domains in `without` are used for nothing but their own score, which nothing else looks at.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.datasets import pacs
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.files import write_tensors
from sibcore.settings import setting
from sibcore.sib import unit
from sibcore.vision.backbones import imagenet_network
from sibcore.vision.features import extract
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.facts.record import as_dict
from sibrepro.studies.pacs import finetune
from sibrepro.studies.pacs.experiment import first_rows, split
from sibrepro.studies.pacs.finetune import Recipe, make_model, own_statistics, start_from_means
from sibrepro.studies.pacs.rotations import hashes, turn

FEATURES = "features.safetensors"
HELD_OUT = 0.1  # share of each source domain that f does not see
SOME = 2048  # of the images that f learned from, so many, or a few more, are looked at afterwards
COUNTED = 1024  # likewise, of any domain, to take statistics from
BATCH = 28  # images at a time, in extraction: what a CPU's cache holds


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuned(Recipe):
    """One fine-tuning; the seed is of held-out images, too."""

    dataset: str = setting("pacs")
    backbone: str = setting("efficientnet-lite0")  # with ImageNet's weights
    size: int = setting(96, least=1)  # width of the images in pixels
    without: str = setting("sketch")  # domains that are not sources, joined by +


def first_stage(p: FineTuned, data: ImageSet | None = None) -> Record:
    """Return the run of one fine-tuning, with features in its file `features.safetensors`."""
    return FINE_TUNED.run(p, data=data)


def inputs(p: FineTuned, data: ImageSet | None = None) -> Inputs:
    """Return the images, and the network with ImageNet's weights."""
    data = data or pacs.load(size=p.size)
    network = imagenet_network(p.backbone, data.images.shape[1])
    return Inputs(hashes(data, network), lambda: (data, network))


def compute(p: FineTuned, loaded: tuple[ImageSet, nn.Module], folder: Path) -> Numbers:
    """Fine-tune the network, and leave what it then says of every image in the folder.

    The file has unit features, float16: "features" [M, d] of the images "rows" [M] under the sources' statistics,
    "part" [M] being 0 for images that f learned from, 1 for held-out ones and 2 for those of other domains;
    "own/<domain>" [n, d] of each other domain; where rotation is learned "turned/<domain>" and "turned/held_out"
    [3, n, d]; "head" [k, d] and "turn_head" [4, d + 1].

    Returns:
        metrics: accuracy in percent of the cosine head on "held_out" source images and on each domain that is no
            source, such as "sketch", and under its own batch-norm statistics, "sketch/own".
        arrays: the history.
    """
    data, network = loaded
    device, labels = pick_device(), torch.from_numpy(data.labels)
    learn, held_out, others = split_rows(p, data)
    recipe = Recipe(**{field.name: getattr(p, field.name) for field in dataclasses.fields(Recipe)})
    network = network.to(device, memory_format=torch.channels_last).requires_grad_()
    model = make_model(network, network.backbone.dim, len(data.classes), recipe).to(device)
    images = torch.from_numpy(np.array(data.images))
    few = first_rows(learn, labels, len(data.classes))
    start_from_means(model, images[few], labels[few])
    history = finetune.finetune(model, images, labels, learn, [*learn, *others.values()], recipe, folder)

    seen = torch.cat([every(rows, SOME // len(learn)) for rows in learn])
    tested = {"held_out": torch.cat(held_out)} | others
    parts = [seen, *tested.values()]
    rows = torch.cat(parts)
    own_statistics(model.f, images[every(seen, COUNTED)])
    found = {"features": _features(model.f, images[rows]), "rows": rows}
    found["part"] = torch.cat([torch.full((len(part),), min(place, 2)) for place, part in enumerate(parts)]).byte()
    upright = dict(zip(tested, found["features"].split([*map(len, parts)])[1:], strict=True))
    for name, rows in tested.items():
        if p.turned:
            turned = turn(images[rows])[1:]
            found[f"turned/{name}"] = _features(model.f, turned.flatten(0, 1)).unflatten(0, turned.shape[:2])
    for name, rows in others.items():
        own_statistics(model.f, images[every(rows, COUNTED)])
        found[f"own/{name}"] = _features(model.f, images[rows])
    found["head"] = unit(model.head.weight.detach()).cpu()
    found["turn_head"] = torch.cat([model.turn_head.weight, model.turn_head.bias[:, None]], 1).detach().cpu()
    write_tensors(folder / FEATURES, found, {"settings": as_dict(p)})

    def accuracy(features: Tensor, rows: Tensor) -> float:
        return 100 * ((features.float() @ found["head"].T).argmax(1) == labels[rows]).double().mean().item()

    metrics: dict[str, Any] = {}
    for name, rows in tested.items():
        metrics[name] = accuracy(upright[name], rows)
        if name in others:
            metrics[f"{name}/own"] = accuracy(found[f"own/{name}"], rows)
    curves = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "accuracy", "turn_loss")}
    return metrics, curves


def split_rows(p: FineTuned, data: ImageSet) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
    """Rows of each source domain to learn from, held-out rows of each, and rows of each other domain by its name."""
    others = {name: torch.from_numpy(data.domain_rows(name)) for name in p.without.split("+")}
    return *split(torch.from_numpy(data.domains), data.domain_names, others, HELD_OUT, p.seed), others


def every(rows: Tensor, count: int) -> Tensor:
    """Of rows in their order every second, third, ..., so that about `count` are left."""
    return rows[:: max(1, len(rows) // count)]


def _features(network: nn.Module, images: Tensor) -> Tensor:
    """Unit features, float16 [n, d]."""
    return unit(extract(network, images, batch=BATCH)).cpu().half()


FINE_TUNED = Experiment(
    "fine_tuning",
    FineTuned,
    compute,
    inputs,
    keeps_files=True,
    state=finetune.CHECKPOINT,
    oldest=("dataset backbone size without steps batch turned turn_weight peak_lr grey seed").split(),
    tolerance={"*": 5.0},  # 300 steps: each of them moves single images
)
