"""Domain adaptation experiments as run records: each domain of PACS in turn is the target, the others are the sources.

Nothing is selected on the target: training runs for its number of steps, and a share of every source domain is held
out. To choose a setting, `left_out` takes the real target away and `target` names one of its sources instead.

    adapt(Adaptation(target="sketch", method="SIB-Rot", K=3))
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sibcore import adapt as adaptation
from sibcore.adapt import METHODS, Adapter, Bank, Schedule
from sibcore.datasets import pacs
from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.settings import one_of, setting
from sibcore.sib import class_means, unit
from sibcore.vision.augment import as_float
from sibcore.vision.backbones import imagenet_network
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.studies.pacs.rotations import Rotations, halves, hashes, rotations

SIZES = (8, 16, 32, 64, 128, 256)  # of test minibatches, all of which are tried
ORDERS = ("shuffled", "file")
PER_CLASS = 20  # images of each class and source domain in the first lambda


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptation(Schedule):
    """One training and its test on all images of the target domain; the seed is of xi and of held-out images, too."""

    dataset: str = setting("pacs")
    backbone: str = setting("efficientnet-lite0")  # with ImageNet's weights
    # of images, with none, the upper part or all of f trained; shipped: no longer here
    features: Literal["frozen", "upper", "all", "shipped"] = one_of("frozen", "upper", "all", "shipped")
    size: int = setting(160, least=1)  # width of the images in pixels
    target: str = setting("sketch")  # domain without labels
    left_out: str = setting("")  # domain that is neither source nor target
    method: str = one_of("SIB-Rot", "SIB", "Rot", "source-only")
    K: int = setting(3, least=0)  # synthetic gradient steps
    eta: float = setting(0.03, above=0)  # step size of the inner updates, for means over a minibatch
    held_out: float = setting(0.1, above=0, below=1)  # share of each source domain
    test_batch: int = setting(64, least=1)  # images of a test minibatch
    test_order: Literal["shuffled", "file"] = one_of("shuffled", "file")  # how test images are dealt out


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """A bank of pixels, turned when they are asked for."""

    images: np.ndarray
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]

    def take(self, rows: Tensor, turns: Tensor) -> Tensor:
        """[*rows.shape, 3, H, W] in [0, 1]"""
        upright = as_float(torch.from_numpy(self.images[rows.flatten().cpu().numpy()]).to(rows.device))
        turned = [image.rot90(int(turn), (1, 2)) for image, turn in zip(upright, turns.flatten(), strict=True)]
        return torch.stack(turned).unflatten(0, rows.shape)


def inputs(p: Adaptation, data: ImageSet | None = None) -> Inputs:
    """Return where f's inputs come from, with the part of f that is trained."""
    if p.features == "shipped":
        raise FileNotFoundError("these no longer come with the project: features='frozen' takes them from images")
    data = data or pacs.load(size=p.size)
    network = imagenet_network(p.backbone, data.images.shape[1])

    @functools.cache  # several trainings of one process share a bank
    def load() -> tuple[Bank, nn.Module]:
        if p.features == "frozen":
            return on_device(rotations(data, p.backbone)), nn.Identity()
        if p.features == "upper":
            return on_device(rotations(data, p.backbone, "activations")), halves(network)[1]
        numbers = map(torch.from_numpy, (data.labels, data.domains))
        return Pictures(data.images, *numbers, data.classes, data.domain_names), network

    return Inputs(hashes(data, network), load)


def adapt(p: Adaptation, known: Inputs | None = None) -> Record:
    """Return the run of one training."""
    return ADAPTATION.run(p, origin=known)


def compute(p: Adaptation, loaded: tuple[Any, nn.Module]) -> Numbers:
    """Train on the source domains and test on the target.

    Returns:
        metrics: "accuracy" on the target and on "held_out" source images, in percent; "steps_per_second".
        arrays: "predicted" and true "labels" of every target image, in the order of the data set; the same predictions
            for other test minibatches, such as "predicted/16/file"; the history of the training.
    """
    bank, f = loaded
    device = pick_device()
    sources, held_out, target = domain_rows(p, bank)
    f = copy.deepcopy(f).to(device)
    rows = first_rows(sources, bank.labels, len(bank.classes))
    upright = bank.take(rows, torch.zeros_like(rows)).to(device)
    start, centre = first_lambda(f, upright, bank.labels[rows].to(device), len(bank.classes))
    model = Adapter(f, start, centre, p.K, p.eta, p.method, p.seed).to(device)
    schedule = Schedule(**{field.name: getattr(p, field.name) for field in dataclasses.fields(Schedule)})
    history = adaptation.train(model, bank, sources, target, schedule)

    features = adaptation.embed(model, bank, target)
    main = adaptation.predict(model, features, p.test_batch, p.test_order, p.seed)
    arrays = {"predicted": main, "labels": bank.labels[target]}
    if p.K or METHODS[p.method].starts_by_turns:  # others answer each image by itself
        for size, order in itertools.product(SIZES, ORDERS):
            arrays[f"predicted/{size}/{order}"] = adaptation.predict(model, features, size, order, p.seed)
    right = [
        adaptation.predict(model, adaptation.embed(model, bank, rows), p.test_batch, seed=p.seed) == bank.labels[rows]
        for rows in held_out
    ]
    metrics = {
        "accuracy": 100 * (main == bank.labels[target]).double().mean().item(),
        "held_out": 100 * torch.cat(right).double().mean().item(),
        "steps_per_second": history[-1]["steps_per_second"],
    }
    curves = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "turn_loss", "accuracy")}
    return metrics, {name: array.cpu().numpy().astype(np.uint8) for name, array in arrays.items()} | curves


def domain_rows(p: Adaptation, bank: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Rows of each source domain to learn from, held-out rows of each, and rows of the target."""
    check_domains(bank, p.target, p.left_out)
    of_target = bank.domains == bank.domain_names.index(p.target)
    others = (p.target, p.left_out)
    return *split(bank.domains, bank.domain_names, others, p.held_out, p.seed), of_target.nonzero()[:, 0]


def check_domains(bank: Any, *names: str) -> None:
    """An error where there is no domain of such a name; an empty one stands for none."""
    for name in filter(None, names):
        if name not in bank.domain_names:
            raise ValueError(f"there is no domain {name!r}: expected one of {', '.join(bank.domain_names)}")


def split(
    domains: Tensor, names: Sequence[str], others: Collection[str], share: float, seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Rows of each domain but `others` to learn from, and a share of each that is held out."""
    generator = torch.Generator().manual_seed(seed)
    learn, held_out = [], []
    for number, name in enumerate(names):
        if name not in others:
            rows = (domains == number).nonzero()[:, 0]
            mixed = rows[torch.randperm(len(rows), generator=generator)]
            count = max(1, round(share * len(mixed)))
            held_out.append(mixed[:count].sort()[0])
            learn.append(mixed[count:].sort()[0])
    return learn, held_out


def first_rows(sources: Sequence[Tensor], labels: Tensor, classes: int) -> Tensor:
    """A few rows of each class and source domain, from which lambda starts."""
    return torch.cat([rows[labels[rows] == label][:PER_CLASS] for rows in sources for label in range(classes)])


def on_device(bank: Rotations) -> Rotations:
    """The bank where the model computes."""
    moved = {name: getattr(bank, name).to(pick_device()) for name in ("inputs", "labels", "domains")}
    return dataclasses.replace(bank, **moved)


def first_lambda(f: nn.Module, inputs: Tensor, labels: Tensor, ways: int) -> tuple[Tensor, Tensor]:
    """lambda [k, d] to start from, and the centre [d] of unit features, of labelled source images [n, ...].

    It is few-shot's: class means, with these images as the support set.
    """
    with torch.no_grad():
        features = torch.cat([unit(f(part.float())) for part in inputs.split(256)])
    centre = features.mean(0)
    return unit(class_means(unit(features - centre), labels, ways)[0]), centre


ADAPTATION = Experiment(
    "adaptation",
    Adaptation,
    compute,
    inputs,
    oldest=(
        "dataset backbone features size target left_out method K eta tasks steps batch lr turns turn_weight alpha "
        "held_out test_batch test_order seed"
    ).split(),
    tolerance={"steps_per_second": None, "*": 1.0},
    kept_here=("predicted/",),  # predictions in other minibatches: no table reads them
)
