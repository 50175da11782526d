"""Looks at the SIB that a few-shot run trained, each a run of its own.

`inside`: accuracy, loss, calibration and xi along theta^0, theta^1...
`unbalanced`: is its gain real? Queries that are not balanced, and class labels in another order: xi is an MLP over the
k logits of a query and may treat the classes differently, though their order means nothing.
`compression`, `jpeg`: features that were not compressed for shipping, and pictures stored as JPEG.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore.datasets.base import ImageSet
from sibcore.device import pick_device
from sibcore.episodes import Tasks
from sibcore.evaluate import Evaluation, answers, evaluate, most_likely
from sibcore.sib import SIB, unit
from sibcore.vision.backbones import load_network
from sibcore.vision.features import Features, extract, feature_bank
from sibrepro.facts import Record
from sibrepro.few_shot import shipped
from sibrepro.few_shot.experiment import Banks, Numbers, examine, numbers, pretrained_network, tasks
from sibrepro.few_shot.settings import ALPHA, COMPRESSION, INSIDE, JPEG, UNBALANCED, FewShot
from sibrepro.statistics import paired

BEYOND = 3  # steps taken past the trained K
BINS = 10  # of confidence
ORDERS = 10  # of the classes
QUALITIES = (95, 75)  # of JPEG


def inside(trained: Record) -> Record:
    """The run of looking into the SIB of a few-shot run, on its test tasks.

    metrics: per step k "accuracy/k", "loss/k", "xi_cosine/k" (of xi to dl/dy^, the gradient that it stands for) and
    "calibration_error/k"; arrays: "confidence", "correct", "weight" [K+1+BEYOND, BINS] for reliability diagrams, and
    one task in the plane ("view/queries" [n, 2], "view/labels", "view/theta" [K+1, k, 2], "view/support" [m, 2])
    """

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        some = dataclasses.replace(p, test_episodes=min(p.test_episodes, 2000))
        return look(sib, banks["test"], tasks(some, banks["test"], "test").to(pick_device()))

    return examine(INSIDE, trained, compute)


@torch.no_grad()
def look(model: SIB, bank: Features, tasks: Tasks, batch: int = 250) -> Numbers:
    """Metrics and arrays of `inside`."""
    longer = model.changed(steps=model.steps + BEYOND) if model.steps else model
    features = unit(bank.features).to(model.scale)
    parts = []
    for part in (tasks[start : start + batch] for start in range(0, len(tasks), batch)):
        query = features[part.query]
        thetas = longer.infer(features[part.support], part.support_labels, query)
        parts.append(_along(longer, thetas, query, part.query_labels))
    sums = {name: sum(part[name].double().cpu() for part in parts) for name in parts[0]}
    queries, weight = tasks.query.numel(), sums["weight"]
    confidence, correct = (sums[name] / weight.clamp_min(1) for name in ("confidence", "correct"))
    along = {"accuracy": sums["accuracy"] / queries, "loss": sums["loss"] / queries}
    along |= {"xi_cosine": sums["xi_cosine"] / len(tasks)}
    along |= {"calibration_error": (weight / queries * (confidence - correct).abs()).sum(1)}
    metrics = {f"{name}/{k}": value for name, values in along.items() for k, value in enumerate(values.tolist())}
    arrays = {"confidence": confidence, "correct": correct, "weight": weight} | _view(model, features, tasks)
    return metrics, {name: array.cpu().numpy() for name, array in arrays.items()}


def _along(model: SIB, thetas: list[Tensor], query: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Sums over a batch of tasks, each [steps + 1] or [steps + 1, BINS]."""
    rows = []
    for theta in thetas:
        logits = model.classify(query, theta)
        probability, answer = logits.softmax(-1).max(-1)
        right = (answer == labels).double()
        bin_ = (probability * BINS).long().clamp_max(BINS - 1).flatten()
        gradient = logits.softmax(-1) - F.one_hot(labels, model.ways)  # dl/dy^
        xi = model.xi(logits) if model.transductive else gradient
        rows.append(
            {
                "accuracy": right.sum(),
                "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"),
                "xi_cosine": F.cosine_similarity(xi.flatten(1), gradient.flatten(1), dim=1).sum(),
                "weight": torch.bincount(bin_, minlength=BINS),
                "confidence": torch.bincount(bin_, probability.flatten().double(), BINS),
                "correct": torch.bincount(bin_, right.flatten(), BINS),
            }
        )
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _view(model: SIB, features: Tensor, tasks: Tasks) -> dict[str, Tensor]:
    """The task with the median gain among the first hundred, in the plane of its two largest principal components."""
    part = tasks[:100]
    support, query = features[part.support], features[part.query]
    thetas = model.infer(support, part.support_labels, query)
    right = [(model.classify(query, theta).argmax(-1) == part.query_labels).double().mean(1) for theta in thetas]
    gain = right[-1] - right[0]
    one = int(gain.argsort(stable=True)[len(gain) * 3 // 4])
    place = in_the_plane(query[one])
    weights = torch.stack([F.normalize(theta[one], dim=-1) for theta in thetas])
    points = {"queries": query[one], "support": support[one], "theta": weights}
    view = {"labels": part.query_labels[one], "support_labels": part.support_labels[one]}
    view |= {"accuracy": torch.stack([accuracy[one] for accuracy in right])}
    view |= {name: place(values) for name, values in points.items()}
    return {f"view/{name}": values for name, values in view.items()}


def in_the_plane(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Where points [..., d] lie in the plane of the two largest principal components of queries [n, d]: [..., 2]."""
    mean = query.mean(0)
    axes = torch.linalg.svd(query - mean)[2][:2]
    return lambda points: (points - mean) @ axes.T


class Orders(nn.Module):
    """A SIB under several orders of the classes, `orders [P, k]`."""

    def __init__(self, sib: SIB, orders: Tensor) -> None:
        super().__init__()
        self.sib, self.ways, self.dim = sib, sib.ways, sib.dim
        self.register_buffer("orders", orders)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """The probabilities [1 + P, B, n, k]: averaged over the orders, then under each, every class in its place."""
        each = []
        for order in self.orders:  # class j is called order[j]
            logits = self.sib.answer(support, order[support_labels], query)
            each.append(logits[..., order].softmax(-1))
        return torch.stack([torch.stack(each).mean(0), *each])


def random_orders(count: int, ways: int, seed: int = 0) -> Tensor:
    """[count, ways]: the order as it is, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.arange(ways)] + [torch.randperm(ways, generator=generator) for _ in range(count - 1)])


def unbalanced(trained: Record) -> Record:
    """The run of trying the SIB of a few-shot run on less kind tasks.

    metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet), each with "..._ci95"; under several orders
    of the classes: "orders/lowest", "orders/highest", "averaged" (of their averaged probabilities), and
    "orders/changed", the percentage of queries whose answer depends on the order
    arrays: queries answered rightly in each task, "balanced", "unbalanced", "averaged", and "orders" [P, N]
    """
    return examine(UNBALANCED, trained, _compute)


def _compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
    device, bank, queries = pick_device(), banks["test"], p.ways * p.queries
    kind, unkind = (tasks(p, bank, "test", alpha).to(device) for alpha in (None, ALPHA))
    scores = {"balanced": evaluate(sib, bank.features, kind), "unbalanced": evaluate(sib, bank.features, unkind)}
    if not (sib.transductive and sib.steps):
        return numbers(scores, queries)
    right, changed = [], []
    for probabilities, part in answers(Orders(sib, random_orders(ORDERS, p.ways).to(device)), bank.features, kind):
        said = most_likely(probabilities)
        right.append((said == part.query_labels).double().mean(-1).cpu())
        changed.append((said[1:] != said[1]).any(0).double().mean(1).cpu())
    scores["averaged"], *each = map(Evaluation, torch.cat(right, 1))
    metrics, arrays = numbers(scores, queries)
    means = [100 * score.mean for score in each]
    metrics |= {"orders/lowest": min(means), "orders/highest": max(means)}
    metrics |= {"orders/changed": 100 * torch.cat(changed).mean().item()}
    return metrics, arrays | {"orders": np.stack([score.right(queries) for score in each])}


def compression(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on shipped features on these and on exact ones.

    metrics: accuracies in percent on the same tasks, "exact" and "shipped"; the paired "difference" and its "..._ci95";
    "megabytes" of the file; arrays: queries answered rightly in each task
    """
    if trained.params["features"] != "shipped":
        raise ValueError(f"{trained.id} is of images: the effect of compression is that on features='shipped'")

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        exact = feature_bank(network or pretrained_network(data, p.backbone), data, "test")
        versions = {"exact": exact.features, "shipped": banks["test"].features}
        metrics, arrays = _on_the_same_tasks(sib, versions, banks, p)
        difference = paired(arrays["exact"], arrays["shipped"], p.ways * p.queries)
        metrics = {name: metrics[name] for name in versions}
        metrics |= {"difference": difference.mean, "difference_ci95": difference.ci95}
        return metrics | {"megabytes": shipped.file(p.dataset, p.backbone).stat().st_size / 1e6}, arrays

    return examine(COMPRESSION, trained, compute)


def jpeg(trained: Record, data: ImageSet, network: Path | None = None) -> Record:
    """The run of testing the SIB of a few-shot run on test images as they are and as JPEG.

    metrics: accuracies in percent on the same tasks, "original" and such as "jpeg95", each with "..._ci95"
    arrays: queries answered rightly in each task
    """

    def compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
        f = load_network(network or pretrained_network(data, p.backbone))[0]
        f = f.to(pick_device(), memory_format=torch.channels_last)
        images = data.images[data.rows("test")]
        pictures = {"original": images} | {f"jpeg{quality}": as_jpeg(images, quality) for quality in QUALITIES}
        pictures = {name: torch.from_numpy(seen) for name, seen in pictures.items()}
        versions = {name: extract(f, seen, what=f"features of {name}") for name, seen in pictures.items()}
        return _on_the_same_tasks(sib, versions, banks, p)

    return examine(JPEG, trained, compute, data=data, network=network)


def as_jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """uint8 [N, H, W, 3] -> the same after JPEG compression."""
    contents = [io.BytesIO() for _ in images]
    for image, content in zip(images, contents, strict=True):
        Image.fromarray(image).save(content, "JPEG", quality=quality)
    return np.stack([np.asarray(Image.open(content)) for content in contents])


def _on_the_same_tasks(sib: SIB, versions: Mapping[str, Tensor], banks: Banks, p: FewShot) -> Numbers:
    fixed = tasks(p, banks["test"], "test").to(pick_device())
    return numbers({name: evaluate(sib, bank, fixed) for name, bank in versions.items()}, p.ways * p.queries)
