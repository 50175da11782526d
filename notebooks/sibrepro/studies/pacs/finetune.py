"""Stage 1 of domain adaptation: all of a network with ImageNet's weights learns from labelled source domains.

A step sees so many images of each source domain, and the cosine head tells their classes apart. With `turned` it also
sees images of every domain, the target among them, each turned by some quarters, and a second head tells by how many
(Xu et al., 2019): the one thing that is learned of the target, and it needs no labels.

Everything random in step t is drawn from a generator seeded by (seed, t), so weights, Adam's moments and the step are
the whole state: an interrupted run that goes on, with as many threads as it began with, ends in the same numbers.

    <folder>/checkpoint.safetensors    the state at the last multiple of `every` steps
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from sibcore import fingerprint
from sibcore.adapt import TURNS
from sibcore.device import threads
from sibcore.files import check_same, hash_of, put_weights, read_tensors, weights_of, write_tensors
from sibcore.seeds import combine
from sibcore.settings import Settings, setting
from sibcore.sib import class_means, unit
from sibcore.vision.augment import LUMA, as_float, augment, draw
from sibcore.vision.backbones import exact_convolutions
from sibcore.vision.features import extract
from sibcore.vision.pretrain import CHECKPOINT, CosineHead, one_cycle

MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam keeps beside each parameter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """How to fine-tune."""

    steps: int = setting(300, least=1)
    batch: int = setting(24, least=1)  # images of each source domain in a step
    turned: int = setting(0, least=0)  # turned images of each domain in a step; 0: rotation is not learned
    turn_weight: float = setting(0.3, least=0)  # of the rotation loss
    peak_lr: float = setting(1e-3, above=0)  # of AdamW, with one cycle
    warm_up: float = setting(0.2, above=0, below=1)  # part of all steps in which the learning rate rises
    weight_decay: float = setting(0.01, least=0)
    jitter: float = setting(0.4, least=0, below=1)
    grey: float = setting(0.1, least=0, below=1)  # share of the images that lose their colours
    scale: float = setting(10.0, above=0)  # of the cosine head, at first
    every: int = setting(50, least=1)  # steps between checkpoints
    seed: int = setting(0, least=0)


def make_model(network: nn.Module, dim: int, classes: int, recipe: Recipe) -> nn.Sequential:
    """`f`, the network, with `head` for the classes and `turn_head` for quarter turns; the seed decides theirs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        head = CosineHead(dim, classes, recipe.scale)
        turn_head = nn.Linear(dim, TURNS)
    return nn.Sequential(OrderedDict(f=network, head=head, turn_head=turn_head))


@torch.no_grad()
def start_from_means(model: nn.Sequential, images: Tensor, labels: Tensor) -> None:
    """Put the class means of a few labelled images, seen from their own mean, into the head, few-shot's lambda."""
    features = unit(extract(model.f, images).to(model.head.weight))
    means = class_means(features, labels.to(features.device), len(model.head.weight))[0]
    model.head.weight.copy_(unit(means - means.mean(0)))


def finetune(
    model: nn.Sequential,
    images: Tensor,
    labels: Tensor,
    sources: Sequence[Tensor],
    unlabelled: Sequence[Tensor],
    recipe: Recipe,
    folder: Path,
    report: Callable[[str], None] = print,
) -> list[dict[str, float]]:
    """Train `model` in place; goes on where an earlier call in `folder` stopped. A row of history for each checkpoint.

    images uint8 [N, H, W, 3], labels [N]; sources: rows of each domain with labels; unlabelled: rows of all domains
    whose turns are told apart. Labels of other rows than those in `sources` are never looked at.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), recipe.peak_lr, weight_decay=recipe.weight_decay)
    seen = hash_of([*sources, *unlabelled, *(labels[rows] for rows in sources)])
    same = {"recipe": dataclasses.asdict(recipe), "rows": seen, "code": fingerprint.reachable(__name__)}
    about = same | {"history": [], "threads": torch.get_num_threads(), "seconds": 0.0}
    about = _resume(folder / CHECKPOINT, model, optimizer, about, same)
    model.train()
    with threads(about["threads"]):
        for first in range(len(about["history"]) * recipe.every, recipe.steps, recipe.every):
            began, sums = time.perf_counter(), torch.zeros(3)
            last = min(first + recipe.every, recipe.steps)
            for step in range(first, last):
                optimizer.param_groups[0]["lr"] = one_cycle(step, recipe.steps, recipe)
                optimizer.zero_grad()
                loss, numbers = _losses(model, images, labels.to(device), sources, unlabelled, recipe, step)
                loss.backward()
                optimizer.step()
                sums += numbers
            means = (sums / (last - first)).tolist()
            if not all(map(math.isfinite, means)):
                raise FloatingPointError(f"the loss became NaN or infinite before step {last}: lower peak_lr")
            about["seconds"] += time.perf_counter() - began
            row = {"step": last, **dict(zip(("loss", "accuracy", "turn_loss"), means, strict=True))}
            about["history"].append(row)
            moments = {
                f"{kind}.{name}": optimizer.state[p][kind]
                for name, p in model.named_parameters()
                for kind in MOMENTS
                if p in optimizer.state
            }
            write_tensors(folder / CHECKPOINT, weights_of(model) | moments, about)
            left = about["seconds"] / last * (recipe.steps - last) / 60
            report(
                f"step {last}/{recipe.steps}  loss {row['loss']:.3f}  accuracy {100 * row['accuracy']:.1f} %  "
                f"turn loss {row['turn_loss']:.3f}  {left:.0f} min left"
            )
    model.eval()
    return about["history"]


def _losses(
    model: nn.Sequential,
    images: Tensor,
    labels: Tensor,
    sources: Sequence[Tensor],
    unlabelled: Sequence[Tensor],
    recipe: Recipe,
    step: int,
) -> tuple[Tensor, Tensor]:
    """What a step descends, and for the history: cross-entropy and accuracy of the classes, the rotation loss."""
    device = labels.device
    generator = torch.Generator().manual_seed(combine(recipe.seed, step))
    upright = torch.cat([_some(rows, recipe.batch, generator) for rows in sources])
    others = [_some(rows, recipe.turned, generator) for rows in unlabelled] if recipe.turned else []
    rows = torch.cat([upright, *others])
    turns = torch.randint(TURNS, (len(rows) - len(upright),), generator=generator)
    padding = images.shape[1] // 8
    pictures = augment(images[rows], draw(len(rows), padding, recipe.jitter, generator), padding)
    without = torch.rand(len(rows), generator=generator) < recipe.grey
    greys = (pictures * pictures.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True).expand_as(pictures)
    pictures = torch.where(without[:, None, None, None], greys, pictures)
    turned = [picture.rot90(int(turn), (1, 2)) for picture, turn in zip(pictures[len(upright) :], turns, strict=True)]
    pictures = torch.stack([*pictures[: len(upright)], *turned]).to(device, memory_format=torch.channels_last)
    with exact_convolutions():
        features = model.f(pictures)
    logits, wanted = model.head(features[: len(upright)]), labels[upright.to(device)]
    loss = F.cross_entropy(logits, wanted)
    turn_loss = loss.new_zeros(())
    if recipe.turned:
        turn_loss = F.cross_entropy(model.turn_head(features[len(upright) :]), turns.to(device))
    accuracy = (logits.argmax(1) == wanted).float().mean()
    numbers = torch.stack([loss, accuracy, turn_loss]).detach().cpu()
    return loss + recipe.turn_weight * turn_loss, numbers


def _some(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many of the rows, none twice."""
    if len(rows) < count:
        raise ValueError(f"a domain has {len(rows)} images, fewer than the {count} of a step: lower batch or turned")
    return rows[torch.randperm(len(rows), generator=generator)[:count]]


def _resume(
    path: Path, model: nn.Module, optimizer: torch.optim.AdamW, about: dict[str, Any], same: dict[str, Any]
) -> dict[str, Any]:
    """Put the checkpoint at `path` into model and optimizer and return its `about`; the one given if there is none."""
    if not path.exists():
        return about
    tensors, about = read_tensors(path)
    fingerprint.check_code(path.parent, about.get("code"), same["code"])
    check_same(path, about, {name: value for name, value in same.items() if name != "code"})
    put_weights(model, tensors)
    done = torch.tensor(float(about["history"][-1]["step"]))
    for name, parameter in model.named_parameters():
        if f"{MOMENTS[0]}.{name}" in tensors:
            moments = {kind: torch.empty_like(parameter).copy_(tensors[f"{kind}.{name}"]) for kind in MOMENTS}
            optimizer.state[parameter].update(step=done.clone(), **moments)
    return about


def own_statistics(network: nn.Module, images: Tensor, batch: int = 64) -> None:
    """Batch norms of `network` take on the statistics of these images [N, H, W, 3] (AdaBN, Li et al., 2016)."""
    device = next(network.parameters()).device
    mixed = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    parts = mixed.tensor_split(math.ceil(len(images) / batch))
    update_bn((as_float(images[rows].to(device)) for rows in parts), network.eval())
