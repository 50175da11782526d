"""Stage 1 on PACS as runs: a network is fine-tuned on some domains, and its features of every image are kept.

    first_stage(FineTuned(without="sketch", turned=6))    the target is sketch, and rotations are learned: "Rot"
    first_stage(FineTuned(without="cartoon+sketch"))      only photo and art are sources; on cartoon it errs as on an
                                                          unseen domain, but cartoon's labels may be used in stage 2

Labels of the domains in `without` are used for nothing but the accuracy on these domains, on which nothing depends.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

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
from sibrepro.studies.pacs.experiment import first_rows, share_right, split
from sibrepro.studies.pacs.finetune import Recipe, make_model, own_statistics, start_from_means
from sibrepro.studies.pacs.rotations import hashes, rotate

FEATURES = "features.safetensors"
HELD_OUT = 0.1  # share of each source that the network does not learn from
SOME = 2048  # about how many of the images that the network learned from are kept as features
COUNTED = 1024  # about how many images of a domain its batch-norm statistics are taken from
BATCH = 28  # images at a time when features are extracted, so that activations fit a CPU's cache


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuned(Recipe):
    """The settings of one fine-tuning. The seed also decides which images are held out."""

    dataset: str = setting("pacs")
    backbone: str = setting("efficientnet-lite0")  # the network, with ImageNet's weights
    size: int = setting(96, least=1)  # width of the images in pixels
    without: str = setting("sketch")  # the domains that are not sources, joined by +


def first_stage(p: FineTuned, data: ImageSet | None = None) -> Record:
    """Return the run of one fine-tuning, with features in its file `features.safetensors`.

    `data` are the images, if the caller has loaded them.
    """
    return FINE_TUNED.run(p, data=data)


def inputs(p: FineTuned, data: ImageSet | None = None) -> Inputs:
    """Return the images, and the network with ImageNet's weights."""
    data = data or pacs.load(size=p.size)
    network = imagenet_network(p.backbone, data.images.shape[1])
    return Inputs(hashes(data, network), lambda: (data, network))


def compute(p: FineTuned, loaded: tuple[ImageSet, nn.Module], folder: Path) -> Numbers:
    """Fine-tune the network, and write its features of every image to a file in `folder`.

    The file holds unit features as float16:

        features            of the images "rows" under the batch-norm statistics of the sources, [M, d]
        rows                [M]
        part                0 for images that the network learned from, 1 for held-out images, 2 for other domains, [M]
        own/<domain>        of each other domain under its own batch-norm statistics, [n, d]
        turned/<domain>     of the same images under three rotations, and turned/held_out; only where rotation is
                            learned, [3, n, d]
        head, turn_head     the weights of the two heads, [k, d] and [4, d + 1]

    Returns:
        metrics: accuracy in percent on "held_out" images of the sources and on each other domain, such as "sketch"; the
            same under the domain's own batch-norm statistics, such as "sketch/own".
        arrays: the history of the training.
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
    found = _features_of_all(model.f, images, seen, torch.cat(held_out), others, bool(p.turned))
    found["head"] = unit(model.head.weight.detach()).cpu()
    found["turn_head"] = torch.cat([model.turn_head.weight, model.turn_head.bias[:, None]], 1).detach().cpu()
    write_tensors(folder / FEATURES, found, {"settings": as_dict(p)})

    def accuracy(features: Tensor, rows: Tensor) -> float:
        """Return the accuracy of the cosine head in percent."""
        return 100 * share_right((features.float() @ found["head"].T).argmax(1), labels[rows])

    held = found["part"] == 1
    metrics = {"held_out": accuracy(found["features"][held], found["rows"][held])}
    for name, rows in others.items():
        metrics[name] = accuracy(found["features"][torch.isin(found["rows"], rows)], rows)
        metrics[f"{name}/own"] = accuracy(found[f"own/{name}"], rows)
    return metrics, {name: np.array([row[name] for row in history]) for name in history[0]}


def split_rows(p: FineTuned, data: ImageSet) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
    """Return the rows of each source to learn from, held-out rows of each source, and rows of other domains by name."""
    others = {name: torch.from_numpy(data.domain_rows(name)) for name in p.without.split("+")}
    return *split(torch.from_numpy(data.domains), data.domain_names, others, HELD_OUT, p.seed), others


def every(rows: Tensor, count: int) -> Tensor:
    """Return about `count` rows, at even distances in their order."""
    return rows[:: max(1, len(rows) // count)]


def _features_of_all(
    f: nn.Module, images: Tensor, seen: Tensor, held_out: Tensor, others: dict[str, Tensor], turned: bool
) -> dict[str, Tensor]:
    """Return the features that `compute` writes. The batch-norm statistics of `f` change on the way.

    Args:
        f: the fine-tuned network.
        images: all images.
        seen: rows of images that the network learned from.
        held_out: rows of held-out images of the sources.
        others: rows of each other domain.
        turned: whether rotated images are needed, too.
    """
    tested = {"held_out": held_out} | others
    rows = torch.cat([seen, *tested.values()])
    part = torch.full((len(rows),), 2, dtype=torch.uint8)
    part[: len(seen) + len(held_out)] = 1
    part[: len(seen)] = 0
    own_statistics(f, images[every(seen, COUNTED)])
    found = {"features": _features(f, images[rows]), "rows": rows, "part": part}
    if turned:
        for name, rows in tested.items():
            rotated = rotate(images[rows])[1:]
            found[f"turned/{name}"] = _features(f, rotated.flatten(0, 1)).unflatten(0, rotated.shape[:2])
    for name, rows in others.items():
        own_statistics(f, images[every(rows, COUNTED)])
        found[f"own/{name}"] = _features(f, images[rows])
    return found


def _features(network: nn.Module, images: Tensor) -> Tensor:
    """Return unit features as float16, `[n, d]`."""
    return unit(extract(network, images, batch=BATCH)).cpu().half()


FINE_TUNED = Experiment(
    "fine_tuning",
    FineTuned,
    compute,
    inputs,
    keeps_files=True,
    state=finetune.CHECKPOINT,
    oldest=("dataset backbone size without steps batch turned turn_weight peak_lr grey seed").split(),
    tolerance={"*": 5.0},  # percentage points, since each of the 300 steps can change the class of single images
)
