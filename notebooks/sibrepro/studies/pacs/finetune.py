"""Stage 1 of domain adaptation: fine-tune a whole network with ImageNet's weights on labelled source domains.

A step sees a few images of each source, whose classes a cosine head tells apart. With `Recipe.turned` it also sees
images of every domain, the target among them, each turned by some quarters. A second head learns to tell by how many
(Xu et al., 2019). This is all that is learned from the target, and it needs no labels.

Everything random in step t is drawn from a generator seeded by (seed, t). Weights, Adam's moments and the step are
therefore the whole state: an interrupted run that is continued with as many threads as it began with ends in the same
numbers.

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

MOMENTS = ("exp_avg", "exp_avg_sq")  # what torch's AdamW keeps beside each parameter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """How to fine-tune a network."""

    steps: int = setting(300, least=1)
    batch: int = setting(24, least=1)  # images of each source domain in a step
    turned: int = setting(0, least=0)  # turned images of each domain in a step; with 0 rotation is not learned
    turn_weight: float = setting(0.3, least=0)  # weight of the rotation loss
    peak_lr: float = setting(1e-3, above=0)  # highest learning rate of AdamW, which follows one cycle
    warm_up: float = setting(0.2, above=0, below=1)  # share of the steps in which the learning rate rises
    weight_decay: float = setting(0.01, least=0)
    jitter: float = setting(0.4, least=0, below=1)  # of brightness, contrast and saturation
    grey: float = setting(0.1, least=0, below=1)  # share of the images that lose their colours
    scale: float = setting(10.0, above=0)  # initial scale of the cosine head
    every: int = setting(50, least=1)  # steps between checkpoints
    seed: int = setting(0, least=0)  # of the heads' initial weights and of everything drawn in a step


def make_model(network: nn.Module, dim: int, classes: int, recipe: Recipe) -> nn.Sequential:
    """Return the network as `f`, with a new `head` for the classes and a new `turn_head` for the turns.

    Args:
        network: the feature network.
        dim: length of its features.
        classes: number of classes.
        recipe: its seed decides the weights of the heads.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        head = CosineHead(dim, classes, recipe.scale)
        turn_head = nn.Linear(dim, TURNS)
    return nn.Sequential(OrderedDict(f=network, head=head, turn_head=turn_head))


@torch.no_grad()
def start_from_means(model: nn.Sequential, images: Tensor, labels: Tensor) -> None:
    """Set the class weights to the lambda of few-shot tasks, with a few labelled images as the support set.

    These are class means, from which the mean over classes is subtracted.
    """
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
    """Train `model` in place, and continue where an earlier call in `folder` stopped.

    Args:
        model: the network with its heads, as `make_model` returns it.
        images: uint8 `[N, H, W, 3]`.
        labels: classes `[N]`. Only those of rows in `sources` are used.
        sources: the rows of each source.
        unlabelled: the rows of each domain whose images are turned.
        recipe: how to train.
        folder: where the checkpoint is.
        report: is called with a line of text at each checkpoint.

    Returns:
        the history, a row for each checkpoint: "step", and the means of "loss", "accuracy" and "turn_loss" since the
        last one.

    Raises:
        FloatingPointError: if the loss becomes NaN or infinite.
        ValueError: if the checkpoint in `folder` belongs to another run.
    """
    device, checkpoint = next(model.parameters()).device, folder / CHECKPOINT
    optimizer = torch.optim.AdamW(model.parameters(), recipe.peak_lr, weight_decay=recipe.weight_decay)
    seen = hash_of([*sources, *unlabelled, *(labels[rows] for rows in sources)])
    same = {"recipe": dataclasses.asdict(recipe), "rows": seen, "code": fingerprint.reachable(__name__)}
    about = same | {"history": [], "threads": torch.get_num_threads(), "seconds": 0.0}
    if checkpoint.exists():
        about = _resume(checkpoint, model, optimizer, same)
    model.train()
    with threads(about["threads"]):
        for first in range(len(about["history"]) * recipe.every, recipe.steps, recipe.every):
            began, sums = time.perf_counter(), torch.zeros(3)
            last = min(first + recipe.every, recipe.steps)
            for step in range(first, last):
                optimizer.param_groups[0]["lr"] = one_cycle(step, recipe.steps, recipe)
                optimizer.zero_grad()
                objective, numbers = _losses(model, images, labels.to(device), sources, unlabelled, recipe, step)
                objective.backward()
                optimizer.step()
                sums += numbers
            if not sums.isfinite().all():
                raise FloatingPointError(f"the loss became NaN or infinite before step {last}: lower peak_lr")
            loss, accuracy, turn_loss = (sums / (last - first)).tolist()
            about["seconds"] += time.perf_counter() - began
            about["history"].append({"step": last, "loss": loss, "accuracy": accuracy, "turn_loss": turn_loss})
            write_tensors(checkpoint, weights_of(model) | _moments(model, optimizer), about)
            left = about["seconds"] / last * (recipe.steps - last) / 60
            report(
                f"step {last}/{recipe.steps}  loss {loss:.3f}  accuracy {100 * accuracy:.1f} %  "
                f"turn loss {turn_loss:.3f}  {left:.0f} min left"
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
    """Return what a step minimises, and for the history the class loss, the accuracy and the rotation loss."""
    generator = torch.Generator().manual_seed(combine(recipe.seed, step))
    upright = torch.cat([_some(rows, recipe.batch, generator) for rows in sources])
    others = [_some(rows, recipe.turned, generator) for rows in unlabelled] if recipe.turned else []
    rows, count = torch.cat([upright, *others]), len(upright)
    turns = torch.zeros(len(rows), dtype=torch.long)
    turns[count:] = torch.randint(TURNS, (len(rows) - count,), generator=generator)
    pictures = _pictures(images[rows], turns, recipe, generator)
    with exact_convolutions():
        features = model.f(pictures.to(labels.device, memory_format=torch.channels_last))
    logits, wanted = model.head(features[:count]), labels[upright.to(labels.device)]
    loss = F.cross_entropy(logits, wanted)
    turn_loss = loss.new_zeros(())
    if recipe.turned:
        turn_loss = F.cross_entropy(model.turn_head(features[count:]), turns[count:].to(labels.device))
    accuracy = (logits.argmax(1) == wanted).float().mean()
    numbers = torch.stack([loss, accuracy, turn_loss]).detach().cpu()
    return loss + recipe.turn_weight * turn_loss, numbers


def _pictures(images: Tensor, turns: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Augment images uint8 `[n, H, W, 3]`, take the colours off some, and turn each by quarters, `[n, 3, H, W]`."""
    padding = images.shape[1] // 8
    pictures = augment(images, draw(len(images), padding, recipe.jitter, generator), padding)
    is_grey = torch.rand(len(images), generator=generator) < recipe.grey
    greys = (pictures * pictures.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    pictures = torch.where(is_grey[:, None, None, None], greys, pictures)
    return torch.stack([picture.rot90(int(turn), (1, 2)) for picture, turn in zip(pictures, turns, strict=True)])


def _some(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` of the rows, none of them twice."""
    if len(rows) < count:
        raise ValueError(f"a domain has {len(rows)} images, fewer than the {count} of a step: lower batch or turned")
    return rows[torch.randperm(len(rows), generator=generator)[:count]]


def _moments(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """Return the state of AdamW for a checkpoint. A rotation head that does not learn has none."""
    found = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        found |= {f"{kind}.{name}": state[kind] for kind in MOMENTS if kind in state}
    return found


def _resume(path: Path, model: nn.Module, optimizer: torch.optim.AdamW, same: dict[str, Any]) -> dict[str, Any]:
    """Load a checkpoint into model and optimizer, and return what it says about itself.

    Args:
        path: the checkpoint.
        model: the model.
        optimizer: its optimizer.
        same: what the checkpoint must agree with: the recipe, the images and the code.
    """
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
    """Give the batch norms of `network` the statistics of these images `[N, H, W, 3]` (AdaBN, Li et al., 2016)."""
    device = next(network.parameters()).device
    mixed = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    parts = mixed.tensor_split(math.ceil(len(images) / batch))
    update_bn((as_float(images[rows].to(device)) for rows in parts), network.eval())
