"""Stage 2 of domain adaptation on PACS: methods adapt to a domain, on the features that stage 1 left.

A minibatch of unlabelled images of one domain is treated as a few-shot task. Its images are the query set, and lambda,
the class weights of stage 1, stands in for the support set. SIB, its training loop and the rivals therefore work
without changes.

xi is trained on one of two kinds of tasks:

    "shift"     minibatches of a domain that the network has not learned from. For this, networks fine-tuned on two
                sources see the third one, so that their errors resemble those on the target.
    "sources"   minibatches of the domains that the network did learn from, as in the paper.

Every choice for a target uses labels of its source domains only. Chosen are the feature variant (how features are
normalised, see `banks.FeatureVariant`), step sizes, the kind of tasks, and the options of rivals.
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
from sibrepro.facts import Experiment, Inputs, Numbers, Record, Spelling
from sibrepro.meta_training.settings import XiName
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.rivals import BASELINES, RECENT, tune
from sibrepro.rivals.test_time import TEST_TIME, CosineClassifier
from sibrepro.studies.pacs import banks
from sibrepro.studies.pacs.banks import FEATURE_VARIANTS, Bank, FeatureVariant, View
from sibrepro.studies.pacs.experiment import ORDERS, SIZES, check_domains, share_right

RIVALS = TEST_TIME | {name: (BASELINES | RECENT)[name] for name in ("soft-k-means", "tim", "alpha-tim", "paddle")}
# Candidates among which the sources choose: step sizes of xi, kinds of tasks, and step sizes of eq. (ssup).
ETAS, TASKS = (0.1, 0.3, 1.0), ("shift", "sources")
ROTATION_RATES = (0.0, 0.1, 1.0, 10.0, 100.0)
ROTATION_STEPS, ROTATION_LR = 200, 0.03  # training of the rotation head


@parameters
class SecondStage:
    """The settings of one run: one method, tested on the target or on a source that stands in for it.

    Some values mean that the choice is made on the source domains: an empty `look` or `tasks`, `eta` = 0 and
    `turn_rate` = -1. The names of the fields are part of the runs' ids and therefore stay as they were published:
    `look` is a feature variant, `held` a source that is left out, and "turned" means rotated.
    """

    dataset: str = "pacs"
    backbone: str = "efficientnet-lite0"  # the network that stage 1 fine-tuned
    target: str = "sketch"  # the domain whose labels are used for the score only
    held: str = ""  # a source to test on instead of the target, which then plays no part at all
    network: Literal["source-only", "Rot"] = "Rot"  # what stage 1 learned: classes alone, or rotations too
    first_seed: NonNegative = 0  # the seed of stage 1
    method: str = "SIB"  # SIB, or a key of RIVALS. SIB with K = 0 is the classifier of stage 1
    start: Literal["lambda", "turned"] = "lambda"  # theta^0: lambda, or lambda after the step of eq. (ssup)
    turn_rate: Annotated[float, Field(ge=-1)] = -1.0  # step size of eq. (ssup)
    look: str = ""  # the text of a `FeatureVariant`, such as "mixed/own/2"
    K: NonNegative = 3  # synthetic gradient steps
    eta: Annotated[float, Field(ge=0)] = 0.0  # step size of the inner update, for means over a minibatch
    xi: XiName = "set"  # the synthetic gradient network
    tasks: Literal["shift", "sources", ""] = "shift"  # the kind of tasks on which xi is trained
    alpha: Annotated[float, Field(ge=0)] = 1.0  # Dirichlet spread of the classes in every second training task
    images: Count = 64  # images of a training task
    steps: Count = 500  # training steps of Adam, whose learning rate follows one cycle
    batch: Count = 8  # tasks of a training step
    lr: Positive = 2e-3  # the highest learning rate
    test_batch: Count = 64  # images of a test minibatch
    seed: NonNegative = 0  # seed of xi, of its training tasks and of the test minibatches
    other_batches: bool = False  # whether to predict in test minibatches of other sizes and orders, too


def second_stage(p: SecondStage, bank: Bank | None = None) -> Record:
    """Return the run of these settings, on the features that come with the project or on those in `bank`."""
    return SECOND_STAGE.run(p, bank=bank)


def inputs(p: SecondStage, bank: Bank | None = None) -> Inputs:
    """Return the features that stage 1 left.

    Raises:
        ValueError: if the method or a domain of the settings does not exist.
    """
    bank = bank or banks.load()
    if p.method != "SIB" and p.method not in RIVALS:
        raise ValueError(f"there is no method {p.method!r}: expected SIB or one of {', '.join(RIVALS)}")
    check_domains(bank, p.target, p.held)
    return Inputs(bank.hashes, lambda: bank)


def compute(p: SecondStage, bank: Bank) -> Numbers:
    """Train the method if it learns, and predict the class of every image of the target.

    Returns:
        metrics: "accuracy" in percent, the feature variant as "look", and what else was chosen on the sources: "eta",
            "tasks", "turn_rate" or a rival's "options".
        arrays: "predicted" and true "labels" of every image; with `other_batches` also the predictions in other
            minibatches, such as "predicted/16/file".
    """
    variant = FeatureVariant.parse(p.look) if p.look else chosen_variant(bank, p.target)
    name = network_of(p)
    view = banks.view(bank, name, p.held or p.target, variant)
    metrics = {"look": str(variant)}
    if p.method == "SIB":
        for setting, values in {"eta": ETAS, "tasks": TASKS}.items():
            if p.K and not getattr(p, setting):
                metrics[setting] = chosen(p, bank, setting, values)
                p = dataclasses.replace(p, **{setting: metrics[setting]})
        method = trained(p, bank, variant)
    else:
        metrics["options"] = _tuned(bank, p.target, variant, p.method)
        method = RIVALS[p.method](len(bank.classes), **metrics["options"])
    adapter = None
    if p.start == "turned":
        adapter = rotation_adapter(view, p.seed)
        metrics["turn_rate"] = p.turn_rate if p.turn_rate >= 0 else chosen_rotation_rate(bank, name, variant)
        adapter.sib.eta = metrics["turn_rate"]
    predicted = predict(method, view, p.test_batch, "shuffled", p.seed, adapter)
    metrics["accuracy"] = 100 * share_right(predicted, view.labels)
    arrays = {"labels": view.labels, "predicted": predicted}
    if p.other_batches:
        for size, order in itertools.product(SIZES, ORDERS):
            arrays[f"predicted/{size}/{order}"] = predict(method, view, size, order, p.seed, adapter)
    return metrics, {name: array.numpy().astype(np.uint8) for name, array in arrays.items()}


def network_of(p: SecondStage) -> str:
    """Return the name of the network that sees the target, or the source that stands in for it."""
    if p.held:
        return banks.key([p.target, p.held])
    return banks.key([p.target], p.network == "Rot", p.first_seed)


def pairs(target: str, domains: Sequence[str], held: str = "") -> list[tuple[str, str]]:
    """Return, for each source but `held`, the network that learned from the other sources, and the source's name.

    None of these networks learned from the target, and the target is not among the names.
    """
    sources = [name for name in domains if name not in (target, held)]
    return [(banks.key([target, name]), name) for name in sources]


def unseen_sources(bank: Bank, target: str, variants: Sequence[FeatureVariant], held: str = "") -> list[View]:
    """Return each source but `held`, through the network that learned from the other sources, in each variant."""
    return [banks.view(bank, *pair, variant) for pair in pairs(target, bank.domain_names, held) for variant in variants]


def trained(p: SecondStage, bank: Bank, variant: FeatureVariant) -> SIB:
    """Return the SIB that these settings train.

    Settings that only matter when it is tested are reset first, so that runs which differ in nothing else share one
    training.
    """
    same = {"start": "lambda", "turn_rate": -1.0, "test_batch": 64, "other_batches": False}
    if p.tasks == "shift":
        same |= {"network": "Rot", "first_seed": 0}  # trained on networks of two sources, whatever sees the target
    return _trained(dataclasses.replace(p, **same), bank, variant)


@functools.lru_cache(32)
def _trained(p: SecondStage, bank: Bank, variant: FeatureVariant) -> SIB:
    """Train a SIB, or return it without training if it takes no steps."""
    dim = banks.lambda_of(bank, next(iter(bank.networks.values())), variant)[0].shape[1]
    model = SIB(len(bank.classes), dim, p.K, p.eta or 1.0, reduction="mean", seed=p.seed, xi=p.xi).to(pick_device())
    model.prototype_weight.requires_grad_(False)  # dimensions of different networks have nothing in common
    if not p.K:
        return model
    if p.tasks == "shift":
        # Every variant shows the same images with other errors. That makes up a little for having few domains.
        views = unseen_sources(bank, p.target, FEATURE_VARIANTS, p.held)
    else:
        views = banks.learned(bank, network_of(p), variant)
    sampler = Minibatches(views, p.images, p.alpha, p.seed)
    schedule = train.Schedule(optimiser="adam", steps=p.steps, batch=p.batch, lr=p.lr, every=p.steps)
    train.train(model, sampler.bank, sampler, schedule, report=lambda line: None)
    return model


class Minibatches:
    """A sampler of training tasks for `sibcore.train`: minibatches of views, with lambda as the support set.

    Task i is drawn from view i modulo the number of views. In the second round of views, the fourth and so on, the
    class proportions of a task are drawn from a Dirichlet(alpha), because a minibatch of the target may be unbalanced,
    too.

    Attributes:
        bank: for each view its lambda, then its features, `[rows, d]`; the indices of tasks are rows of it.
        images: images of a task, at most as many as the smallest view has.
        alpha: Dirichlet spread; with 0 all tasks have the proportions of their view.
        views: 1, since no image of a task is augmented.
    """

    views = 1

    def __init__(self, views: Sequence[View], images: int, alpha: float, seed: int) -> None:
        self.images = min(images, *(len(view.labels) for view in views))
        self.alpha, self.seed = alpha, seed
        self.ways = len(views[0].start)
        self.bank = torch.cat([part for view in views for part in (view.start, view.features)]).to(pick_device())
        self.rows = len(self.bank)
        self._views = views
        self._starts = [0, *itertools.accumulate(self.ways + len(view.labels) for view in views)]  # their first rows

    @property
    def setup(self) -> dict[str, Any]:
        """Return what decides the tasks besides the views."""
        return {name: getattr(self, name) for name in ("ways", "images", "alpha", "seed")}

    def batches(self, first: int, last: int, batch: int) -> Iterator[Tasks]:
        """Yield `batch` tasks for each training step from `first` to `last` - 1; a step always gets the same ones."""
        for step in range(first, last):
            generator = torch.Generator().manual_seed(combine(self.seed, step))
            drawn = [self._task(step * batch + place, generator) for place in range(batch)]
            stacked = map(torch.stack, zip(*drawn, strict=True))
            yield Tasks(*stacked).to(self.bank.device)

    def _task(self, number: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw one task: support rows, support labels, query rows, query labels and classes."""
        round_, place = divmod(number, len(self._views))
        start, view = self._starts[place], self._views[place]
        schedule = adapt.Schedule(batch=self.images, alpha=self.alpha if round_ % 2 else 0.0)
        chosen = adapt.draw(torch.arange(len(view.labels)), view.labels, schedule, generator)
        classes = torch.arange(self.ways)
        return start + classes, classes, start + self.ways + chosen, view.labels[chosen], classes


@torch.no_grad()
def predict(
    method: Method, view: View, batch: int, order: adapt.Order, seed: int = 0, adapter: Adapter | None = None
) -> Tensor:
    """Predict the class of every image of a view, one minibatch at a time.

    Args:
        method: what answers a minibatch, given theta^0 as its support set.
        view: the images.
        batch: the largest number of images of a minibatch. All minibatches are of nearly the same size.
        order: whether images are shuffled first, or taken as the data set has them, class after class.
        seed: seed of the shuffling.
        adapter: makes theta^0 by eq. (ssup) for each minibatch. Without it theta^0 is lambda.

    Returns:
        class indices, `[n]`.
    """
    features, start = view.features.to(pick_device()), view.start.to(pick_device())
    labels = torch.arange(len(start), device=start.device)[None]
    predicted = torch.empty(len(features), dtype=torch.long)
    for part in adapt.dealt(len(features), batch, order, seed):
        theta = start[None]
        if adapter is not None:
            theta = adapter.turn_step(adapter.start[None], *_rotated(view, part), len(part)).to(start)
        predicted[part] = method.answer(theta, labels, features[None, part])[0].max(-1).indices.cpu()
    return predicted


def rotation_adapter(view: View, seed: int) -> Adapter:
    """Return the model that takes the step of eq. (ssup) on a view: lambda, and a trained rotation head z^.

    The head learns by how many quarters an image is rotated. For that it sees all images of the view, without labels.
    """
    model = Adapter(torch.nn.Identity(), view.start, torch.zeros_like(view.start[0]), K=0, eta=1.0, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.turn_head.parameters(), ROTATION_LR)
    for _ in range(ROTATION_STEPS):
        part = torch.randperm(len(view.features), generator=generator)[:128]
        loss = model.turn_loss(*_rotated(view, part))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def _rotated(view: View, part: Tensor) -> tuple[Tensor, Tensor]:
    """Return features `[1, 4 n, d]` of some images under the four rotations, and these rotations `[1, 4 n]`."""
    if view.rotated is None:
        raise ValueError("eq. (ssup) needs rotated images: take the network that learned rotations, network='Rot'")
    features = torch.cat([view.features[None, part], view.rotated[:, part]])
    return features.flatten(0, 1)[None], torch.arange(TURNS).repeat_interleave(len(part))[None]


@functools.cache
def chosen_variant(bank: Bank, target: str) -> FeatureVariant:
    """Return the feature variant with which the classifier of stage 1 is best on the sources of this target."""
    return max(FEATURE_VARIANTS, key=lambda variant: variant_accuracy(bank, target, variant))


def variant_accuracy(bank: Bank, target: str, variant: FeatureVariant) -> float:
    """Return the mean accuracy (0 to 1) of stage 1 on the sources, each through the network of the other sources."""
    views = unseen_sources(bank, target, [variant])
    found = [share_right((view.features @ view.start.T).argmax(1), view.labels) for view in views]
    return sum(found) / len(found)


def chosen(p: SecondStage, bank: Bank, setting: str, values: Sequence[Any]) -> Any:
    """Return the value of a setting with which SIB is best on the sources.

    Each source in turn takes the place of the target, in a run of its own with three synthetic gradient steps on
    minibatches of 64. The same step size then serves minibatches of other sizes, because it applies to means over them.
    """
    same = {"target": p.target, "eta": p.eta, "steps": p.steps, "batch": p.batch, "lr": p.lr}
    sources = [name for name in bank.domain_names if name != p.target]

    def score(value: Any) -> float:
        """Return the sum of the accuracies on the sources."""
        trials = [SecondStage(held=held, **same | {setting: value}) for held in sources]
        return sum(second_stage(trial, bank).metrics["accuracy"] for trial in trials)

    return max(values, key=score)


@functools.cache
def chosen_rotation_rate(bank: Bank, name: str, variant: FeatureVariant) -> float:
    """Return the step size of eq. (ssup) that is best on held-out source images, the smallest one if several are."""
    return max(ROTATION_RATES, key=lambda rate: rotation_accuracy(bank, name, variant, rate))


def rotation_accuracy(bank: Bank, name: str, variant: FeatureVariant, rate: float) -> float:
    """Return the accuracy (0 to 1) on held-out source images after a step of eq. (ssup) of this size."""
    view = banks.held_out(bank, name, variant)
    adapter = rotation_adapter(view, seed=0)
    adapter.sib.eta = rate
    return share_right(predict(CosineClassifier(len(bank.classes)), view, 64, "shuffled", 0, adapter), view.labels)


@functools.cache
def _tuned(bank: Bank, target: str, variant: FeatureVariant, method: str) -> dict[str, Any]:
    """Return the options with which a rival is best on the sources, each through the network of the other sources."""
    sampler = Minibatches(unseen_sources(bank, target, [variant]), images=64, alpha=1.0, seed=1_000_001)
    (tasks,) = sampler.batches(0, 1, 120)
    return tune(RIVALS[method], sampler.ways, sampler.bank, tasks)


SECOND_STAGE = Experiment(
    "second_stage",
    SecondStage,
    compute,
    inputs,
    version=2,  # since feature variants with mixed batch-norm statistics were added
    oldest=(
        "dataset backbone target held network first_seed method start turn_rate look K eta xi tasks alpha images steps "
        "batch lr test_batch seed"
    ).split(),
    spelling=Spelling(
        first=lambda values: values | ({"xi": "paper"} if values["xi"] == "mlp" else {}),
        today=lambda values: values | ({"xi": "mlp"} if values["xi"] == "paper" else {}),
    ),
    # A short training on two threads instead of one changed the accuracy by 0.94 points.
    tolerance={"options": None, "turn_rate": None, "eta": None, "tasks": None, "*": 2.5},
)
