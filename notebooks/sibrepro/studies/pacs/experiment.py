"""Domain adaptation on PACS in one stage: lambda, xi, the rotation head and perhaps part of f are trained together.

Each domain of PACS in turn is the target, whose labels are not used. The other domains are the sources.

Nothing is selected on the target: training runs for a fixed number of steps, and a share of every source is held out.
To choose a setting, `left_out` names the real target, which is then not used at all, and `target` names one of its
sources instead.

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
from sibrepro.studies.pacs.rotations import halves, hashes, rotations

SIZES = (8, 16, 32, 64, 128, 256)  # sizes of the test minibatches that are tried
ORDERS = ("shuffled", "file")  # their orders
PER_CLASS = 20  # images of each class and source that the first lambda is made of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptation(Schedule):
    """The settings of one training and of its test on all images of the target.

    The seed also decides xi's initial weights and which images are held out.
    """

    dataset: str = setting("pacs")
    backbone: str = setting("efficientnet-lite0")  # the feature network, with ImageNet's weights
    # How much of f is trained: nothing, its upper part or all of it. Older runs used compressed features, "shipped".
    features: Literal["frozen", "upper", "all", "shipped"] = one_of("frozen", "upper", "all", "shipped")
    size: int = setting(160, least=1)  # width of the images in pixels
    target: str = setting("sketch")  # the domain whose labels are not used
    left_out: str = setting("")  # a domain that is neither source nor target
    method: str = one_of("SIB-Rot", "SIB", "Rot", "source-only")
    K: int = setting(3, least=0)  # synthetic gradient steps
    eta: float = setting(0.03, above=0)  # step size of the inner updates, for means over a minibatch
    held_out: float = setting(0.1, above=0, below=1)  # the share of each source that is held out
    test_batch: int = setting(64, least=1)  # images of a test minibatch
    test_order: Literal["shuffled", "file"] = one_of("shuffled", "file")  # the order of the test images


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """An image set as pixels. It stands in for `Rotations` where all of f is trained.

    Attributes:
        images: uint8 `[N, H, W, 3]`.
        labels: `[N]`, indices into `classes`.
        domains: `[N]`, indices into `domain_names`.
    """

    images: np.ndarray
    labels: Tensor
    domains: Tensor
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]

    def take(self, rows: Tensor, turns: Tensor) -> Tensor:
        """Return image rows[i, ...], rotated turns[i, ...] times by 90 degrees, `[*rows.shape, 3, H, W]` in [0, 1]."""
        upright = as_float(torch.from_numpy(self.images[rows.flatten().cpu().numpy()]).to(rows.device))
        rotated = [image.rot90(int(turn), (1, 2)) for image, turn in zip(upright, turns.flatten(), strict=True)]
        return torch.stack(rotated).unflatten(0, rows.shape)


def inputs(p: Adaptation, data: ImageSet | None = None) -> Inputs:
    """Return what f is applied to, together with the part of f that is trained.

    Args:
        p: the settings.
        data: the images, if the caller has loaded them.

    Raises:
        FileNotFoundError: if the settings ask for compressed features, which no longer come with the project.
    """
    if p.features == "shipped":
        raise FileNotFoundError("these no longer come with the project: features='frozen' takes them from images")
    data = data or pacs.load(size=p.size)
    network = imagenet_network(p.backbone, data.images.shape[1])

    @functools.cache  # trainings of one process share it
    def load() -> tuple[Bank, nn.Module]:
        """Return the images (pixels, or features or activations under four rotations) and what of f is to train."""
        if p.features == "all":
            labels, domains = torch.from_numpy(data.labels), torch.from_numpy(data.domains)
            return Pictures(data.images, labels, domains, data.classes, data.domain_names), network
        part, f = ("features", nn.Identity()) if p.features == "frozen" else ("activations", halves(network)[1])
        return rotations(data, p.backbone, part).to(pick_device()), f

    return Inputs(hashes(data, network), load)


def adapt(p: Adaptation, known: Inputs | None = None) -> Record:
    """Return the run of these settings. `known` are its `inputs`, if the caller has them from another run."""
    return ADAPTATION.run(p, origin=known)


def compute(p: Adaptation, loaded: tuple[Any, nn.Module]) -> Numbers:
    """Train on the sources and test on the target.

    Returns:
        metrics: "accuracy" on the target and on "held_out" images of the sources, in percent; "steps_per_second".
        arrays: "predicted" and true "labels" of every image of the target, in the order of the data set; predictions
            in other test minibatches, such as "predicted/16/file"; the history of the training.
    """
    bank, f = loaded
    device = pick_device()
    sources, held_out, target = domain_rows(p, bank)
    f = copy.deepcopy(f).to(device)
    rows = first_rows(sources, bank.labels, len(bank.classes))
    upright = bank.take(rows, torch.zeros_like(rows)).to(device)
    start, centre = first_lambda(f, upright, bank.labels[rows].to(device), len(bank.classes))
    model = Adapter(f, start, centre, p.K, p.eta, p.method, p.seed).to(device)
    history = adaptation.train(model, bank, sources, target, p)

    features = adaptation.embed(model, bank, target)
    main = adaptation.predict(model, features, p.test_batch, p.test_order, p.seed)
    arrays = {"predicted": main, "labels": bank.labels[target]}
    if p.K or METHODS[p.method].starts_by_turns:  # otherwise an answer does not depend on the minibatch
        for size, order in itertools.product(SIZES, ORDERS):
            arrays[f"predicted/{size}/{order}"] = adaptation.predict(model, features, size, order, p.seed)
    found = [adaptation.embed(model, bank, rows) for rows in held_out]
    on_sources = torch.cat([adaptation.predict(model, part, p.test_batch, seed=p.seed) for part in found])
    metrics = {
        "accuracy": 100 * share_right(main, bank.labels[target]),
        "held_out": 100 * share_right(on_sources, bank.labels[torch.cat(held_out)]),
        "steps_per_second": history[-1]["steps_per_second"],
    }
    curves = {name: np.array([row[name] for row in history]) for name in ("step", "loss", "turn_loss", "accuracy")}
    return metrics, {name: array.cpu().numpy().astype(np.uint8) for name, array in arrays.items()} | curves


def share_right(predicted: Tensor, labels: Tensor) -> float:
    """Return the share (0 to 1) of images whose class was predicted rightly."""
    return (predicted == labels).double().mean().item()


def domain_rows(p: Adaptation, bank: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return the rows of each source to learn from, the held-out rows of each source, and the rows of the target."""
    check_domains(bank, p.target, p.left_out)
    learn, held_out = split(bank.domains, bank.domain_names, (p.target, p.left_out), p.held_out, p.seed)
    target = (bank.domains == bank.domain_names.index(p.target)).nonzero()[:, 0]
    return learn, held_out, target


def check_domains(bank: Any, *names: str) -> None:
    """Raise a ValueError if one of these is not the name of a domain. An empty name stands for no domain."""
    for name in names:
        if name and name not in bank.domain_names:
            raise ValueError(f"there is no domain {name!r}: expected one of {', '.join(bank.domain_names)}")


def split(
    domains: Tensor, names: Sequence[str], others: Collection[str], share: float, seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Split the images of each source at random into those to learn from and those to hold out.

    Args:
        domains: domains of all images, `[N]`.
        names: names of the domains.
        others: the domains that are not sources.
        share: the share of each source to hold out; at least one image is.
        seed: decides which ones.

    Returns:
        for each source the rows to learn from, and for each source the held-out rows, both in ascending order.
    """
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
    """Return the first `PER_CLASS` rows of each class and source, of which the first lambda is made."""
    return torch.cat([rows[labels[rows] == label][:PER_CLASS] for rows in sources for label in range(classes)])


def first_lambda(f: nn.Module, inputs: Tensor, labels: Tensor, ways: int) -> tuple[Tensor, Tensor]:
    """Return the lambda with which training starts, and the centre from which features are seen.

    It is the lambda of few-shot tasks, class means, with a few source images as the support set.

    Args:
        f: the feature network.
        inputs: images of the sources, `[n, ...]`.
        labels: their classes, `[n]`.
        ways: number of classes.

    Returns:
        lambda `[k, d]`, and the mean of the unit features `[d]`.
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
    kept_here=("predicted/",),  # predictions in other minibatches are not published, because no table reads them
)
