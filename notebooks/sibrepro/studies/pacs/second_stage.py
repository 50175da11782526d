"""Stage 2 on PACS: a minibatch of a domain is a task, and lambda, the classes' weights of stage 1, its support set.

So whatever learns or answers few-shot tasks serves as it is: SIB and its training loop, and the rivals. xi is trained
on domains that the network behind them did not learn from ("shift": the networks of two sources, on the third), whose
errors are of the kind that the target has, or, to the letter of the paper, on the sources themselves ("sources").

Whatever is chosen for a target is chosen on its sources, by `chosen_look` and `chosen_turn_rate` or by runs with
`held` (`chosen`): there a source stands in for the target, and xi is trained on the other two.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sibcore import adapt, train
from sibcore.adapt import TURNS, Adapter
from sibcore.device import pick_device
from sibcore.episodes import Tasks
from sibcore.evaluate import Method
from sibcore.seeds import combine
from sibcore.sib import SIB
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.rivals import BASELINES, RECENT, tune
from sibrepro.rivals.base import Baseline
from sibrepro.rivals.test_time import TEST_TIME, CosineClassifier
from sibrepro.studies.pacs import banks
from sibrepro.studies.pacs.banks import Bank, Look, View
from sibrepro.studies.pacs.experiment import ORDERS, SIZES, check_domains

RIVALS: dict[str, type[Baseline]] = TEST_TIME | {
    name: (BASELINES | RECENT)[name] for name in ("soft-k-means", "tim", "alpha-tim", "paddle")
}
STATISTICS, CENTRES, WEIGHTS = ("sources", "own", "mixed"), ("sources", "own"), (0.0, 1.0, 2.0, 3.0)
LOOKS = [Look(*several) for several in itertools.product(STATISTICS, CENTRES, WEIGHTS)]
ETAS, TASKS = (0.1, 0.3, 1.0), ("shift", "sources")
TURN_RATES = (0.0, 0.1, 1.0, 10.0, 100.0)
XIS = {"set": {"set_aware": 32}, "equivariant": {"equivariant": True}, "paper": {}}


@parameters
class SecondStage:
    """One method on the target, or on a source that stands in for it."""

    dataset: str = Field("pacs", description="name of the image set")
    backbone: str = Field("efficientnet-lite0", description="feature network, fine-tuned in stage 1")
    target: str = Field("sketch", description="domain without labels")
    held: str = Field("", description="a source that stands in for the target, which is then not looked at")
    network: Literal["source-only", "Rot"] = Field("Rot", description="what stage 1 learned")
    first_seed: NonNegative = Field(0, description="of stage 1")
    method: str = Field("SIB", description="SIB, or a key of RIVALS; SIB with K = 0 is the classifier of stage 1")
    start: Literal["lambda", "turned"] = Field("lambda", description="theta^0: lambda, or eq. (ssup)")
    turn_rate: Annotated[float, Field(ge=-1)] = Field(-1.0, description="of eq. (ssup); -1: as the sources say")
    look: Literal[("", *map(str, LOOKS))] = Field(
        "", description="whose statistics / whose mean / weight of ImageNet's features; empty: as the sources say"
    )
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Annotated[float, Field(ge=0)] = Field(
        0.0, description="step size of the inner update, for means over a minibatch; 0: as the sources say"
    )
    xi: Literal[tuple(XIS)] = Field("set", description="what xi sees")
    tasks: Literal["shift", "sources", ""] = Field(
        "shift", description="what xi learns from: unseen domains, the sources themselves; empty: as the sources say"
    )
    alpha: Annotated[float, Field(ge=0)] = Field(1.0, description="Dirichlet spread of classes in every second task")
    images: Count = Field(64, description="images of a task in training")
    steps: Count = Field(500, description="training steps, of Adam with one cycle")
    batch: Count = Field(8, description="tasks in a step")
    lr: Positive = Field(2e-3, description="the highest learning rate")
    test_batch: Count = Field(64, description="images of a test minibatch")
    seed: NonNegative = Field(0, description="of xi, of its tasks and of test minibatches")
    other_batches: bool = Field(False, description="also in test minibatches of other sizes and orders")


def second_stage(p: SecondStage, bank: Bank | None = None) -> Record:
    """Return the run of one method."""
    return SECOND_STAGE.run(p, bank=bank)


def inputs(p: SecondStage, bank: Bank | None = None) -> Inputs:
    """Return the features that stage 1 left, if they have the method and the domains that `p` names."""
    bank = bank or banks.load()
    if p.method != "SIB" and p.method not in RIVALS:
        raise ValueError(f"there is no method {p.method!r}: expected SIB or one of {', '.join(RIVALS)}")
    check_domains(bank, p.target, p.held)
    return Inputs(bank.hashes, lambda: bank)


def compute(p: SecondStage, bank: Bank) -> Numbers:
    """Train the method where it learns, and answer every image of the target.

    Returns:
        metrics: "accuracy" in percent; "look", and "turn_rate" or "options" where something was chosen.
        arrays: "predicted" and true "labels" of every image; predictions in other minibatches, such as
            "predicted/16/file".
    """
    look = Look.parse(p.look) if p.look else chosen_look(bank, p.target)
    name = network_of(p)
    seen = banks.view(bank, name, p.held or p.target, look)
    metrics: dict[str, Any] = {"look": str(look)}
    if p.method == "SIB":
        for setting, values in {"eta": ETAS, "tasks": TASKS}.items():
            if p.K and not getattr(p, setting):
                metrics[setting] = chosen(p, bank, setting, values)
                p = dataclasses.replace(p, **{setting: metrics[setting]})
        method: Method = trained(p, bank, look)
    else:
        options = _tuned(bank, p.target, look, p.method)
        method, metrics["options"] = RIVALS[p.method](len(bank.classes), **options), options
    adapter = None
    if p.start == "turned":
        adapter = turner(seen, p.seed)
        rate = p.turn_rate if p.turn_rate >= 0 else chosen_turn_rate(bank, name, look)
        metrics["turn_rate"] = adapter.sib.eta = rate
    arrays = {"labels": seen.labels, "predicted": predict(method, seen, p.test_batch, "shuffled", p.seed, adapter)}
    if p.other_batches:
        for size, order in itertools.product(SIZES, ORDERS):
            arrays[f"predicted/{size}/{order}"] = predict(method, seen, size, order, p.seed, adapter)
    metrics["accuracy"] = 100 * (arrays["predicted"] == seen.labels).double().mean().item()
    return metrics, {name: array.numpy().astype(np.uint8) for name, array in arrays.items()}


def network_of(p: SecondStage) -> str:
    """The network that sees the target, or what stands in for it."""
    return banks.key([p.target, p.held]) if p.held else banks.key([p.target], p.network == "Rot", p.first_seed)


def pairs(target: str, domains: Sequence[str], held: str = "") -> list[tuple[str, str]]:
    """For each source but `held`, its name and the network of the other sources: never a look at the target."""
    sources = [name for name in domains if name not in (target, held)]
    return [(banks.key([target, name]), name) for name in sources]


def trained(p: SecondStage, bank: Bank, look: Look) -> SIB:
    """The SIB of these settings; where theta^0 comes from, and what it is tested on, are nothing to its training."""
    same: dict[str, Any] = {"start": "lambda", "turn_rate": -1.0, "test_batch": 64, "other_batches": False}
    if p.tasks == "shift":
        same |= {"network": "Rot", "first_seed": 0}  # its networks are those of two sources
    return _trained(dataclasses.replace(p, **same), bank, look)


@functools.lru_cache(32)
def _trained(p: SecondStage, bank: Bank, look: Look) -> SIB:
    dim = banks.lambda_of(bank, next(iter(bank.networks.values())), look)[0].shape[1]
    model = SIB(len(bank.classes), dim, p.K, p.eta or 1.0, reduction="mean", seed=p.seed, **XIS[p.xi]).to(pick_device())
    model.prototype_weight.requires_grad_(False)  # dimensions of different networks have nothing in common
    if not p.K:
        return model
    if p.tasks == "shift":
        # under every look: the same images with other errors, of which there are never enough domains
        seen = itertools.product(pairs(p.target, bank.domain_names, p.held), LOOKS)
        views = [banks.view(bank, *pair, one) for pair, one in seen]
    else:
        views = banks.learned(bank, network_of(p), look)
    sampler = Minibatches(views, p.images, p.alpha, p.seed)
    schedule = train.Schedule(optimiser="adam", steps=p.steps, batch=p.batch, lr=p.lr, every=p.steps)
    train.train(model, sampler.bank, sampler, schedule, report=lambda line: None)
    return model


class Minibatches:
    """Tasks for `sibcore.train`: minibatches of the views in turn, lambda as the support set.

    In every second task the classes come in proportions from a Dirichlet(alpha); alpha = 0: in none. A task has as many
    images as asked for, or as the smallest view has.
    """

    def __init__(self, views: Sequence[View], images: int, alpha: float, seed: int) -> None:
        fewest = min(len(view.features) for view in views)
        self.views, self.images, self.alpha, self.seed = 1, min(images, fewest), alpha, seed
        self.ways = len(views[0].start)
        self.bank = torch.cat([part for view in views for part in (view.start, view.features)]).to(pick_device())
        self.rows = len(self.bank)
        parts = torch.arange(self.rows).split([self.ways + len(view.features) for view in views])
        self._places = [(part[self.ways :], view.labels) for part, view in zip(parts, views, strict=True)]

    @property
    def setup(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("ways", "images", "alpha", "seed")}

    def batches(self, first: int, last: int, batch: int) -> Iterator[Tasks]:
        for step in range(first, last):
            generator = torch.Generator().manual_seed(combine(self.seed, step))
            drawn = [self._task(step * batch + place, generator) for place in range(batch)]
            yield Tasks(*(torch.stack(part).to(self.bank.device) for part in zip(*drawn, strict=True)))

    def _task(self, number: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        rows, labels = self._places[number % len(self._places)]
        odd = number // len(self._places) % 2
        schedule = adapt.Schedule(batch=self.images, alpha=self.alpha if odd else 0.0)
        places = adapt.draw(torch.arange(len(rows)), labels, schedule, generator)
        classes = torch.arange(self.ways)
        return rows[0] - self.ways + classes, classes, rows[places], labels[places], classes


@torch.no_grad()
def predict(
    method: Method, seen: View, batch: int, order: adapt.Order, seed: int = 0, adapter: Adapter | None = None
) -> Tensor:
    """The class [n] of every image, in minibatches of at most `batch` and of like size; `adapter` makes theta^0."""
    features, start = seen.features.to(pick_device()), seen.start.to(pick_device())
    labels = torch.arange(len(start), device=start.device)[None]
    predicted = torch.empty(len(features), dtype=torch.long)
    for part in adapt.dealt(len(features), batch, order, seed):
        theta = start[None]
        if adapter is not None:
            theta = adapter.turn_step(adapter.start[None], *_in_turns(seen, part), len(part)).to(start)
        predicted[part] = method.answer(theta, labels, features[None, part])[0].max(-1).indices.cpu()
    return predicted


def turner(seen: View, seed: int, steps: int = 200) -> Adapter:
    """theta^0 of eq. (ssup): lambda and a head z^ that learns to tell the turns of unlabelled images."""
    model = Adapter(torch.nn.Identity(), seen.start, torch.zeros(seen.start.shape[1]), K=0, eta=1.0, seed=seed)
    generator, count = torch.Generator().manual_seed(seed), len(seen.features)
    optimizer = torch.optim.Adam(model.turn_head.parameters(), 0.03)
    for _ in range(steps):
        part = torch.randperm(count, generator=generator)[:128]
        loss = model.turn_loss(*_in_turns(seen, part))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def _in_turns(seen: View, part: Tensor) -> tuple[Tensor, Tensor]:
    """Features [1, 4 n, d] of some images in all turns, and their turns [1, 4 n]."""
    if seen.turned is None:
        raise ValueError("eq. (ssup) needs turned images: take the network that learned rotations, network='Rot'")
    features = torch.cat([seen.features[None, part], seen.turned[:, part]])
    return features.flatten(0, 1)[None], torch.arange(TURNS).repeat_interleave(len(part))[None]


@functools.cache
def chosen_look(bank: Bank, target: str) -> Look:
    """The look under which stage 1's classifier is best on the sources, each seen by the network of the others."""
    there = [look for look in LOOKS if not look.imagenet or bank.imagenet is not None]
    return max(there, key=lambda look: look_score(bank, target, look))


def look_score(bank: Bank, target: str, look: Look) -> float:
    """Mean accuracy on the sources, each seen by the network of the others."""
    views = [banks.view(bank, *pair, look) for pair in pairs(target, bank.domain_names)]
    found = [((seen.features @ seen.start.T).argmax(1) == seen.labels).double().mean().item() for seen in views]
    return sum(found) / len(found)


def chosen(p: SecondStage, bank: Bank, setting: str, values: Sequence[Any]) -> Any:
    """The value with which three steps are best on the sources, each in the target's place: runs of their own.

    One step size serves minibatches of every size: it is for means over them.
    """
    same = {"target": p.target, "eta": p.eta, "steps": p.steps, "batch": p.batch, "lr": p.lr}
    sources = [name for name in bank.domain_names if name != p.target]

    def score(value: Any) -> float:
        trials = [SecondStage(held=held, **same | {setting: value}) for held in sources]
        return sum(second_stage(trial, bank).metrics["accuracy"] for trial in trials)

    return max(values, key=score)


@functools.cache
def chosen_turn_rate(bank: Bank, name: str, look: Look) -> float:
    """The step size of eq. (ssup) that is best on held-out source images; the smallest of several."""
    return max(TURN_RATES, key=lambda rate: turn_score(bank, name, look, rate))


def turn_score(bank: Bank, name: str, look: Look, rate: float) -> float:
    """Accuracy on held-out source images after a step of eq. (ssup) at this rate."""
    seen = banks.held_out(bank, name, look)
    adapter = turner(seen, seed=0)
    adapter.sib.eta = rate
    method = CosineClassifier(len(bank.classes))
    return (predict(method, seen, 64, "shuffled", 0, adapter) == seen.labels).double().mean().item()


@functools.cache
def _tuned(bank: Bank, target: str, look: Look, method: str) -> dict[str, Any]:
    """A rival's options that are best on the sources, each seen by the network of the others."""
    views = [banks.view(bank, *pair, look) for pair in pairs(target, bank.domain_names)]
    sampler = Minibatches(views, 64, 1.0, seed=1_000_001)
    (tasks,) = sampler.batches(0, 1, 120)
    return tune(RIVALS[method], sampler.ways, sampler.bank, tasks)


SECOND_STAGE = Experiment(
    "second_stage",
    SecondStage,
    compute,
    inputs,
    version=2,  # mixed statistics among the looks
    oldest=(
        "dataset backbone target held network first_seed method start turn_rate look K eta xi tasks alpha images steps "
        "batch lr test_batch seed"
    ).split(),
    # a short training on two threads instead of one was seen to differ by 0.94 points
    tolerance={"options": None, "turn_rate": None, "eta": None, "tasks": None, "*": 2.5},
)
