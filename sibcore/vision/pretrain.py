"""Pretraining of the feature network f: classify all training classes at once with a cosine head.

    python -m sibcore.vision.pretrain --data cifar-fs --folder runs/conv4-64
    torchrun --nproc_per_node 4 -m sibcore.vision.pretrain --backbone wrn-28-10 --folder runs/wrn

All random numbers of epoch e come from generators seeded by (seed, e), and the learning rate is a function of the step.
Weights, momenta and the epoch are therefore the whole state. An interrupted run that goes on, with as many threads as
it began with, ends in the same numbers.

    <folder>/checkpoint.safetensors    the state after the last finished epoch
    <folder>/backbone.safetensors      f after the epoch with the best validation accuracy
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore import datasets, fingerprint
from sibcore.adapt import TURNS
from sibcore.datasets.base import ImageSet
from sibcore.device import autocast, pick_device, pick_precision, threads
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.files import check_same, put_weights, read_tensors, sha256, weights_of, write_tensors
from sibcore.seeds import combine
from sibcore.settings import Settings, one_of, setting
from sibcore.sib import SIB
from sibcore.vision import parallel
from sibcore.vision.augment import augment, draw, resize
from sibcore.vision.backbones import exact_convolutions, feature_network, load_network
from sibcore.vision.features import extract, split_tensors

CHECKPOINT = "checkpoint.safetensors"
BACKBONE = "backbone.safetensors"

# Mean and standard deviation of each channel, of values up to 255, that the authors' release uses.
STATISTICS = {
    "cifar-fs": ((129.377, 124.106, 112.478), (68.209, 65.431, 70.459)),
    "mini-imagenet": ((120.396, 115.594, 104.540), (70.682, 68.276, 72.545)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """How to pretrain.

    Args:
        backbone: name of the network, see `sibcore.vision.backbones`.
        epochs: passes over the training images.
        batch: images of a batch.
        peak_lr: the highest learning rate of `one_cycle`.
        warm_up: share of all steps in which the learning rate rises.
        momentum: Nesterov momentum.
        weight_decay: weight decay.
        jitter: strength of the colour jitter.
        scale: first value of the scale of the cosines in `CosineHead`.
        episodes: number of validation tasks.
        seed: seed of everything random.
        small: height and width of the images in the first epochs, which are then several times faster; 0 for full size.
        small_epochs: number of these first epochs.
        precision: of convolutions: float32, bfloat16, or "auto" for the faster of the two, see `pick_precision`.
        rotation: weight of a second loss, of telling by how far an image is turned (Gidaris et al., 2019).
        frozen: number of lowest layers of a Conv-4 that keep the weights of the network to start from.
    """

    backbone: str = setting("conv4-64")
    epochs: int = setting(50, least=1)
    batch: int = setting(128, least=1)
    peak_lr: float = setting(0.1, above=0)
    warm_up: float = setting(0.3, above=0, below=1)
    momentum: float = setting(0.9, least=0, below=1)
    weight_decay: float = setting(5e-4, least=0)
    jitter: float = setting(0.4, least=0, below=1)
    scale: float = setting(10.0, above=0)
    episodes: int = setting(1000, least=1)
    seed: int = setting(0, least=0)
    small: int = setting(0, least=0)
    small_epochs: int = setting(0, least=0)
    precision: Literal["float32", "bfloat16", "auto"] = one_of("float32", "bfloat16", "auto")
    rotation: float = setting(0.0, least=0)
    frozen: int = setting(0, least=0)

    def size(self, epoch: int, full: int) -> int:
        """Return the height and width of the images in an epoch, for images of full size `full`."""
        return min(self.small, full) if self.small and epoch < self.small_epochs else full

    def epochs_left(self, epoch: int, full: int) -> float:
        """Return the remaining work, from `epoch` on, in units of that epoch. Work is counted in pixels."""
        pixels = [self.size(e, full) ** 2 for e in range(epoch, self.epochs)]
        return sum(pixels) / pixels[0]


class CosineHead(nn.Module):
    """A linear classifier of directions: logits scale * cos(f, w_j), with a learned scale.

    The features of a Conv-4 are a map of several `channels`, and so are the weights w_j. Smaller images have a smaller
    map. The weights are then interpolated to its size, so that the head goes on learning when the size changes.

    Args:
        dim: size d of the features.
        classes: number of classes.
        scale: first value of the scale.
        channels: channels of the map; by default d, for features of one place.
    """

    def __init__(self, dim: int, classes: int, scale: float, channels: int | None = None) -> None:
        super().__init__()
        self.channels = channels or dim
        # of length about 1, because the angle by which a gradient step turns a weight goes as 1 / length^2
        self.weight = nn.Parameter(torch.randn(classes, dim) / math.sqrt(dim))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits `[B, classes]` of features `[B, d]`."""
        weight = self.weight
        if features.shape[1] != weight.shape[1]:
            own_side, side = (math.isqrt(x.shape[1] // self.channels) for x in (weight, features))
            maps = weight.view(-1, self.channels, own_side, own_side)
            weight = F.interpolate(maps, (side, side), mode="bilinear", antialias=True).flatten(1)
        return self.scale * F.normalize(features, dim=1) @ F.normalize(weight, dim=1).T


def pretrain(
    data: ImageSet,
    recipe: Recipe,
    folder: Path,
    device: torch.device | None = None,
    report: Callable[[str], None] = print,
    start: Path | None = None,
) -> dict[str, Any]:
    """Pretrain on the split "train" and keep the network of the epoch that is best on "val".

    A call goes on where an earlier call in the same folder stopped.

    Args:
        data: the image set.
        recipe: how to pretrain.
        folder: where checkpoint and network go.
        device: where to compute; by default the fastest device there is.
        report: takes each line of progress.
        start: file of a network to start from, instead of random weights. Weights of the same name and shape are taken
            over, so that a wider network starts with lower layers of a narrower one. The head is always new.

    Returns:
        The description of the run: recipe, data, and history (loss, accuracy and validation accuracy of each epoch).
    """
    device = device or pick_device()
    recipe = dataclasses.replace(recipe, precision=pick_precision(recipe.precision, device))
    folder = Path(folder)
    images, labels = (tensor.to(device) for tensor in split_tensors(data, "train"))
    full = images.shape[1]
    if len(images) < recipe.batch:
        raise ValueError(f"{data.name} has {len(images)} training images, fewer than the batch of {recipe.batch}")
    if recipe.size(recipe.epochs - 1, full) != full:
        raise ValueError(f"small_epochs is {recipe.small_epochs}: the last of {recipe.epochs} epochs is of full size")
    validation = Validation(data, recipe, device)
    model = make_model(data, recipe)
    if start:
        begin_with(model.f, start)
    lowest(model, recipe).requires_grad_(False)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        trained(model).values(), recipe.peak_lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
    )
    fresh = {
        "backbone": recipe.backbone,
        "image_size": full,
        "recipe": dataclasses.asdict(recipe),
        "data": {data.name: data.sha256} | ({"start": sha256(start)} if start else {}),
        "code": fingerprint.reachable("sibcore.vision.pretrain"),
        "threads": torch.get_num_threads(),
        "epoch": 0,
        "history": [],
        "seconds": 0.0,
    }
    about = resume(folder / CHECKPOINT, model, optimizer, fresh)
    shared, first = parallel.distributed(model), about["epoch"]

    def estimate(seconds: float) -> None:
        if parallel.rank() == 0:
            minutes = seconds * recipe.epochs_left(first, full) / 60
            report(f"{recipe.epochs - first} epochs of {len(images):,} images: about {minutes:.0f} min")

    seen = images  # in the size of the epoch
    for epoch in range(first, recipe.epochs):
        started = time.perf_counter()
        size = recipe.size(epoch, full)
        if size != seen.shape[1]:
            seen = resize(images, size)
        with threads(about["threads"]):
            row = train_epoch(shared, optimizer, seen, labels, recipe, epoch, estimate if epoch == first else None)
            row["val"] = validation(model.f, size)
        seconds = time.perf_counter() - started
        about["epoch"] += 1
        about["history"].append(row)
        about["seconds"] += seconds
        if parallel.rank() == 0:
            save(folder, model, optimizer, recipe, about)
            report(progress_line(about, row, seconds, len(images)))
    return about


def save(folder: Path, model: nn.Sequential, optimizer: torch.optim.SGD, recipe: Recipe, about: dict[str, Any]) -> None:
    """Write the checkpoint of the epoch that has just ended, and the network if it is the best so far."""
    if best_epoch(about["history"], recipe) == about["epoch"]:
        write_tensors(folder / BACKBONE, model.f.state_dict(), about)
    tensors = weights_of(model)
    for name, parameter in trained(model).items():
        tensors[f"momentum.{name}"] = optimizer.state[parameter]["momentum_buffer"]
    write_tensors(folder / CHECKPOINT, tensors, about)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.SGD, fresh: dict[str, Any]) -> dict[str, Any]:
    """Load the checkpoint at `path`, if there is one, into the model and the optimizer.

    Returns:
        The description in the checkpoint, or `fresh` if there is none. Raise a ValueError if the checkpoint was made by
        other code or belongs to another run.
    """
    if not path.exists():
        return fresh
    tensors, about = read_tensors(path)
    fingerprint.check_code(path.parent, about.get("code"), fresh["code"])
    check_same(path, about, {name: fresh[name] for name in ("recipe", "data")})
    put_weights(model, tensors)
    for name, parameter in trained(model).items():
        momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
        optimizer.state[parameter]["momentum_buffer"] = momentum
    return about


def best_epoch(history: list[dict[str, float]], recipe: Recipe) -> int | None:
    """Return the epoch, counted from 1, with the best validation accuracy at full size.

    Of several with the same accuracy it is the latest; None if there was no epoch at full size.
    """
    first = recipe.small_epochs if recipe.small else 0
    values = [(row["val"], epoch) for epoch, row in enumerate(history, 1) if epoch > first]
    return max(values)[1] if values else None


def make_model(data: ImageSet, recipe: Recipe) -> nn.Sequential:
    """Make the feature network `f` and a `head` for the classes and then the turns. The seed fixes the weights."""
    mean, std = channel_statistics(data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        f = feature_network(recipe.backbone, data.images.shape[1], mean, std)
        channels = getattr(f.backbone, "channels", None)
        outputs = len(data.splits["train"]) + (TURNS if recipe.rotation else 0)
        head = CosineHead(f.backbone.dim, outputs, recipe.scale, channels)
    return nn.Sequential(OrderedDict(f=f, head=head))


def begin_with(f: nn.Module, start: Path) -> None:
    """Load the weights of a network's file into f, as far as names and shapes agree."""
    own, found = f.state_dict(), load_network(start)[0].state_dict()
    alike = {name: tensor for name, tensor in found.items() if name in own and own[name].shape == tensor.shape}
    if not any(name.endswith("weight") for name in alike):
        raise ValueError(f"{start} holds another kind of network: none of its weights has the shape of one here")
    f.load_state_dict(own | alike)


def lowest(model: nn.Module, recipe: Recipe) -> nn.Module:
    """Return the frozen layers. A layer of Conv-4 has four modules: convolution, norm, pool and ReLU."""
    layers = getattr(model, "module", model).f.backbone.children()
    return nn.Sequential(*itertools.islice(layers, 4 * recipe.frozen))


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.SGD,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    epoch: int,
    estimate: Callable[[float], None] | None = None,
) -> dict[str, float]:
    """Train for one pass over the images in whole batches.

    Args:
        model: network and head, possibly wrapped for several processes.
        optimizer: its learning rate is set in each step.
        images: uint8 `[N, H, W, 3]`, on the device where to compute.
        labels: int64 `[N]`.
        recipe: how to train.
        epoch: number of the epoch, from 0.
        estimate: called after four batches with the seconds that the epoch will take.

    Returns:
        The mean "loss" and "accuracy".
    """
    device = images.device
    steps = len(images) // recipe.batch
    seed = combine(recipe.seed, epoch)
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).to(device)
    padding = images.shape[1] // 8
    mine = parallel.share(recipe.batch)
    total = torch.zeros(2, device=device)
    model.train()
    lowest(model, recipe).eval()
    began = time.perf_counter()
    for step in range(steps):
        if step == 4 and estimate:
            estimate((time.perf_counter() - began) / 4 * steps)
        rows = order[step * recipe.batch :][: recipe.batch][mine]
        drawn = draw(recipe.batch, padding, recipe.jitter, generator)[mine]
        optimizer.param_groups[0]["lr"] = one_cycle(epoch * steps + step, recipe.epochs * steps, recipe)
        batch = augment(images[rows], drawn, padding)
        optimizer.zero_grad()
        with exact_convolutions():
            loss, accuracy = batch_loss(model, batch, labels[rows], recipe)
            loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach(), accuracy])
    loss, accuracy = parallel.mean(total / steps).tolist()
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss became {loss} in epoch {epoch + 1}; try a smaller peak_lr")
    return {"loss": loss, "accuracy": accuracy}


def batch_loss(model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, with that of the turned images if the recipe asks for it, and the accuracy.

    Args:
        model: network and head.
        images: augmented images `[B, 3, H, W]`.
        labels: `[B]`.
        recipe: says the precision, and the weight of the loss of turned images.
    """
    if recipe.rotation:
        images = with_turns(images)
    with autocast(recipe.precision, images.device):
        logits = classes = model(images).float()
        if recipe.rotation:  # turned images, and the logits of turns, come last
            classes = logits[: len(labels), : logits.shape[1] - TURNS]
        loss = F.cross_entropy(classes, labels)
        if recipe.rotation:
            loss = loss + recipe.rotation * turns_loss(logits, len(labels))
    return loss, (classes.argmax(1) == labels).float().mean()


def with_turns(images: Tensor) -> Tensor:
    """Append every fourth image of a batch `[B, 3, H, W]`, rotated by 90, by 180 and by 270 degrees."""
    turned = [images[::TURNS].rot90(turns, (2, 3)) for turns in range(1, TURNS)]
    return torch.cat([images, *turned]).contiguous(memory_format=torch.channels_last)


def turns_loss(logits: Tensor, batch: int) -> Tensor:
    """Return the cross-entropy of predicting by how far an image is rotated.

    Args:
        logits: of all images that `with_turns` returns; the last four of each image are for the four turns.
        batch: number of images before turned ones were appended.
    """
    upright = logits[:batch:TURNS, -TURNS:]
    turns = torch.arange(TURNS, device=logits.device).repeat_interleave(len(upright))
    return F.cross_entropy(torch.cat([upright, logits[batch:, -TURNS:]]), turns)


def one_cycle(step: int, steps: int, recipe: Recipe) -> float:
    """Return the learning rate of a step: it rises as a cosine from peak/25 to the peak, then falls as one to 0.

    This is the one-cycle schedule of Smith & Topin (2019).
    """
    top = recipe.warm_up * steps
    if step < top:
        low, along = recipe.peak_lr / 25, 1 - step / top
    else:
        low, along = 0.0, (step - top) / (steps - top)
    return low + (recipe.peak_lr - low) * (1 + math.cos(math.pi * along)) / 2


class Validation:
    """Measures the accuracy of the nearest class mean (by cosine) on a fixed set of 1-shot validation tasks.

    Tasks have 5 ways and 15 queries of each class, or as many as the validation classes allow.
    """

    def __init__(self, data: ImageSet, recipe: Recipe, device: torch.device) -> None:
        images, labels = split_tensors(data, "val")
        names = data.splits["val"]
        if len(names) < 2:
            raise ValueError(f"the split val of {data.name} has {len(names)} class: there must be 2 to tell apart")
        self.precision = recipe.precision
        self.ways = min(5, len(names))
        smallest = int(labels.bincount().min())  # images of the smallest class, one of which is the support set
        queries = max(1, min(15, smallest - 1))
        sampler = EpisodeSampler(labels, self.ways, 1, queries, recipe.seed, class_names=names)
        self.images = images.to(device)
        self.tasks = sampler.sample(0, recipe.episodes).to(device)

    def __call__(self, f: nn.Module, size: int) -> float:
        """Return the accuracy of a network's features on images of this height and width."""
        with autocast(self.precision, self.images.device):
            features = extract(f, resize(self.images, size))
        nearest_mean = SIB(self.ways, features.shape[1], steps=0).to(self.images.device)  # an untrained SIB with K = 0
        return evaluate(nearest_mean, features, self.tasks).mean


def channel_statistics(data: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, for images in [0, 1], from `STATISTICS` or else "train"."""
    if data.name in STATISTICS:
        mean, std = map(np.array, STATISTICS[data.name])
    else:
        pixels = data.images[data.rows("train")].reshape(-1, 3)
        mean, std = pixels.mean(0, dtype=np.float64), pixels.std(0, dtype=np.float64)
    return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def progress_line(about: dict[str, Any], row: dict[str, float], seconds: float, images: int) -> str:
    """Return a line for the log about the epoch that has just ended."""
    epochs = about["recipe"]["epochs"]
    left = seconds * (epochs - about["epoch"]) / 60
    parts = [
        f"epoch {about['epoch']:3d}/{epochs}",
        f"loss {row['loss']:.3f}",
        f"accuracy {100 * row['accuracy']:5.2f} %",
        f"val 1-shot {100 * row['val']:5.2f} %",
        f"{images / seconds:5.0f} images/s",
        f"{left:.0f} min left",
    ]
    return "  ".join(parts)


def main() -> None:
    """Pretrain from the command line; each field of `Recipe` is an option."""
    parser = argparse.ArgumentParser("python -m sibcore.vision.pretrain", description="How to pretrain.")
    parser.add_argument("--data", default="cifar-fs", help="name of the data set")
    parser.add_argument("--source", type=Path, help="its file or folder; default: found through SIB_DATA")
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoints go")
    for field in dataclasses.fields(Recipe):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.set_defaults(precision="auto")
    options = vars(parser.parse_args())
    data = datasets.load(options.pop("data"), options.pop("source"))
    folder = options.pop("folder")
    with parallel.processes(pick_device()) as device:
        pretrain(data, Recipe(**options), folder, device, report=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
