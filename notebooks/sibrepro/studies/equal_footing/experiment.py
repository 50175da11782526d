"""The experiment of notebook 07: train and test one method, with the same features and tasks as every other.

There are three groups of methods: SIB with several kinds of xi (`SIBS`), heads that are meta-trained as SIB is
(`HEADS`), and methods that learn nothing (`UNTRAINED`). The queries of training tasks are balanced over the classes,
unbalanced ("dirichlet2": class shares drawn from a Dirichlet(2) distribution), or a mixture that alternates between the
two. The best checkpoint is chosen on validation classes with tasks of the same kind. A method that learns nothing has
its options chosen on validation classes, separately for balanced and for unbalanced queries.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from sibcore import train
from sibcore.device import pick_device
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import Evaluation, evaluate
from sibcore.files import put_weights, read_tensors
from sibcore.sib import SIB
from sibcore.transduce import resized
from sibcore.vision.features import Features
from sibcore.xi import XIS, SetXi
from sibrepro.facts import Experiment, Inputs, Numbers, Record
from sibrepro.meta_training.banks import Banks, banks_of, numbers, tasks
from sibrepro.meta_training.settings import ALPHA, Tested, Where
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.rivals import BASELINES, HEADS, RECENT, tune

UNTRAINED = BASELINES | RECENT
SIBS = {
    "sib": "SIB, the paper's ξ",
    "sib-equivariant": "SIB, equivariant ξ",
    "sib-set": "SIB, set-aware ξ",
    "sib-set-10": "SIB, set-aware ξ, K = 10",
    "sib-set-wide": "SIB, set-aware ξ, wide",
}
SIBS |= {f"sib-{xi}": f"SIB, ξ = {xi}" for xi in XIS if xi != "mlp" and f"sib-{xi}" not in SIBS}
QUERIES = {"balanced": None, "dirichlet2": ALPHA}  # kinds of test queries, with the spread of their class shares
Tasks = Literal["balanced", "dirichlet2", "mixture"]
# Other tasks than those of the training, for runs with `elsewhere`: (ways, queries per class), and how many of each.
SHAPES, FEWER = ((5, 1), (5, 5), (5, 50), (2, 15), (10, 15), (20, 15)), 300
# The points at which `response` evaluates a xi: a class's share of the queries, and one query's probability of it.
SHARES, PROBABILITIES = np.linspace(0.05, 0.6, 12), np.linspace(0.05, 0.95, 19)
SURE = 0.9  # the probability of its class that a query counts as sure at, in these query sets


@parameters
class MethodSettings(Tested):
    """The settings of one run: which method, how it is trained if it learns, and on which tasks it is tested."""

    method: str = Field("sib-set", description="a key of SIBS, HEADS or UNTRAINED")
    features: Where = Field("shipped", description="computed from images, or the project's own")
    tasks: Tasks = Field("mixture", description="queries of the training tasks")
    K: NonNegative = Field(5, description="synthetic gradient steps")
    eta: Positive = Field(1e-2, description="step size of the inner update")
    width: Count = Field(32, description="of a set-aware xi")
    steps: Count = Field(4000, description="meta-training steps, of Adam with one cycle")
    batch: Count = Field(8, description="tasks per step")
    lr: Positive = Field(2e-3, description="the highest learning rate")
    seed: NonNegative = Field(0, description="of the first parameters and of the training tasks")
    elsewhere: bool = Field(False, description="tested with other numbers of ways and queries, too")


def run_method(p: MethodSettings) -> Record:
    """Return the run of one method: published, computed here before, or computed now."""
    return METHOD_COMPARISON.run(p)


def inputs(p: MethodSettings) -> Inputs:
    """Return the features that a run is computed from. Raise ValueError if its method is unknown."""
    known = (*SIBS, *HEADS, *UNTRAINED)
    if p.method not in known:
        raise ValueError(f"there is no method {p.method!r}: expected one of {', '.join(known)}")
    return banks_of(p)


def compute(p: MethodSettings, banks: Banks, folder: Path) -> Numbers:
    """Train the method, or choose its options if it learns nothing, and test it.

    Args:
        p: the settings.
        banks: features of the training, validation and test classes.
        folder: where the training keeps its checkpoints.

    Returns:
        metrics: accuracies in percent on "balanced" and "dirichlet2" queries, each with its "..._ci95", and
            "tasks_per_second" of inference. Trained methods also have "validation" (accuracy in percent), "parameters"
            and "steps_per_second", the others their "options".
        arrays: "balanced" and "dirichlet2", the number of queries answered rightly in each test task, and "xi", the
            `response` of a set-aware xi. With `elsewhere` metrics and arrays also have entries for other tasks, such as
            "20way/15each/balanced".
    """
    return _tuned(p, banks) if p.method in UNTRAINED else _trained(p, banks, folder)


def model_of(p: MethodSettings, dim: int) -> nn.Module:
    """Return a method that learns, before its training, for features of size `dim`."""
    if p.method in HEADS:
        return HEADS[p.method](p.ways, dim, p.seed)
    xi = xi_of(p.method)
    width = p.width if xi == "set" else 0
    return SIB(p.ways, dim, p.K, p.eta, reduction="mean", seed=p.seed, xi=xi, width=width)


def xi_of(method: str) -> str:
    """Return the name of the ξ of a SIB: "sib" has the paper's, "sib-set" and "sib-set-10" have "set"."""
    return method.removeprefix("sib").strip("-").partition("-")[0] or "mlp"


def _trained(p: MethodSettings, banks: Banks, folder: Path) -> Numbers:
    """Train a method, take its best checkpoint and test it."""
    device, bank = pick_device(), banks["train"]
    model = model_of(p, bank.features.shape[1]).to(device)
    schedule = train.Schedule(optimiser="adam", steps=p.steps, batch=p.batch, lr=p.lr, every=max(1, p.steps // 10))
    validation = _sampler(p, banks["val"], 1_000_001).sample(0, p.val_episodes).to(device)
    sampler = _sampler(p, bank, p.seed)
    history = train.train(
        model, bank.features, sampler, schedule, validation=(banks["val"].features, validation), folder=folder
    )
    put_weights(model, read_tensors(folder / train.BEST)[0])
    metrics, arrays = _tested(p, banks, dict.fromkeys(QUERIES, model))
    metrics["validation"] = 100 * max(row["validation"] for row in history)
    metrics["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    metrics["steps_per_second"] = p.steps / train.seconds(history)
    if isinstance(getattr(model, "xi", None), SetXi):
        arrays["xi"] = response(model.xi, p.ways)
    return metrics, arrays


def _tuned(p: MethodSettings, banks: Banks) -> Numbers:
    """Choose the options of a method that learns nothing, for each kind of queries, and test it."""
    method, bank = UNTRAINED[p.method], banks["val"]
    options, models = {}, {}
    for kind, alpha in QUERIES.items():
        options[kind] = tune(method, p.ways, bank.features, tasks(p, bank, "val", alpha))
        models[kind] = method(p.ways, **options[kind])
    metrics, arrays = _tested(p, banks, models)
    return metrics | {"options": options}, arrays


def _tested(p: MethodSettings, banks: Banks, models: dict[str, nn.Module]) -> Numbers:
    """Test the model of each kind of queries, with `elsewhere` also on tasks with other numbers of ways and queries."""
    began = time.perf_counter()
    metrics, arrays = _scores(p, banks, models)
    metrics["tasks_per_second"] = len(QUERIES) * p.test_episodes / (time.perf_counter() - began)
    for ways, queries in SHAPES if p.elsewhere else ():
        shape = dataclasses.replace(p, ways=ways, queries=queries, test_episodes=FEWER)
        others = {kind: _of_ways(model, p, ways) for kind, model in models.items()}
        more_metrics, more_arrays = _scores(shape, banks, others)
        prefix = f"{ways}way/{queries}each/"
        metrics |= {prefix + name: value for name, value in more_metrics.items()}
        arrays |= {prefix + name: value for name, value in more_arrays.items()}
    return metrics, arrays


def _scores(p: MethodSettings, banks: Banks, models: dict[str, nn.Module]) -> Numbers:
    """Return metrics and arrays of each kind of test tasks, answered by the model of that kind."""
    scores: dict[str, Evaluation] = {}
    for kind, alpha in QUERIES.items():
        fixed = tasks(p, banks["test"], "test", alpha).to(pick_device())
        scores[kind] = evaluate(models[kind], banks["test"].features, fixed)
    return numbers(scores, p.ways * p.queries)


def _of_ways(model: nn.Module, p: MethodSettings, ways: int) -> nn.Module:
    """Return the same SIB, or the same method that learns nothing, for another number of ways."""
    if isinstance(model, SIB):
        return resized(model, {"ways": p.ways, "queries": p.queries}, ways, model.dim)
    return type(model)(ways, **model.options)


def _sampler(p: MethodSettings, bank: Features, seed: int) -> EpisodeSampler:
    """Return a sampler of tasks like those that the method is trained on."""
    alpha, mixed = (None if p.tasks == "balanced" else ALPHA), p.tasks == "mixture"
    return EpisodeSampler(
        bank.labels, p.ways, p.shots, p.queries, seed, alpha=alpha, mixed=mixed, class_names=bank.classes
    )


def probe_sets(ways: int, n: int = 75) -> Tensor:
    """Return logits of made-up query sets that show how a method treats one query of class 0.

    The first query of each set gives class 0 one of `PROBABILITIES`. The others are sure of their class, and one of
    `SHARES` of them belongs to class 0. All other classes get equal parts of the rest.

    Args:
        ways: number of classes k.
        n: number of queries in a set.

    Returns:
        Logits `[B, n, k]`; B runs over `SHARES`, and within each over `PROBABILITIES`.
    """
    pairs = torch.cartesian_prod(torch.tensor(SHARES), torch.tensor(PROBABILITIES))
    share, first = pairs.T[..., None]  # each [B, 1]
    p = torch.empty(len(pairs), n, ways, dtype=torch.float64)
    p[:, 0, :1] = first
    p[:, 0, 1:] = (1 - first) / (ways - 1)
    place = torch.arange(n - 1)
    in_class_0 = (place + 0.5) / (n - 1) < share  # [B, n - 1]
    label = torch.where(in_class_0, 0, 1 + place % (ways - 1))
    p[:, 1:] = (1 - SURE) / (ways - 1)
    p[:, 1:].scatter_(2, label.unsqueeze(2), SURE)
    return p.log()


@torch.no_grad()
def response(xi: nn.Module, ways: int) -> np.ndarray:
    """Return how strongly a trained xi pulls the class weight of class 0 towards the first query of `probe_sets`.

    It is -xi of that query at class 0, minus the mean of -xi over the classes. Where it is positive, theta_0 moves
    towards the query.

    Args:
        xi: a module that maps logits `[B, n, k]` to synthetic gradients `[B, n, k]`.
        ways: number of classes k.

    Returns:
        The pull, `[len(SHARES), len(PROBABILITIES)]`.
    """
    logits = probe_sets(ways).to(next(xi.parameters()))
    found = xi(logits)[:, 0]
    return _by_share(found.mean(-1) - found[:, 0])


def implied_by_information(ways: int, weight: float = 0.1) -> np.ndarray:
    """Return the `response` of gradient descent on the loss of TIM instead of a xi.

    The loss is `weight` times the mean entropy of the queries' probabilities, minus the entropy of their mean.
    """
    logits = probe_sets(ways).requires_grad_()
    p = logits.softmax(-1)
    mean = p.mean(1)
    entropies = -(p * p.log()).sum(-1)
    loss = (mean * mean.log()).sum() + weight * entropies.mean(1).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return _by_share(-logits.shape[1] * gradient[:, 0, 0])


def implied_by_transport(ways: int, rounds: int = 100) -> np.ndarray:
    """Return the `response` of a step from the queries' probabilities to those of PT-MAP instead of a xi.

    PT-MAP's probabilities give all classes equal shares of the queries. Sinkhorn's algorithm finds them in `rounds`.
    """
    p = probe_sets(ways).softmax(-1)
    q = p
    for _ in range(rounds):
        q = q / (q.mean(1, keepdim=True) * ways)
        q = q / q.sum(-1, keepdim=True)
    return _by_share((q - p)[:, 0, 0])


def _by_share(pull: Tensor) -> np.ndarray:
    """Arrange a number for each set of `probe_sets`, `[B]`, by share and probability."""
    return pull.double().cpu().numpy().reshape(len(SHARES), len(PROBABILITIES))


METHOD_COMPARISON = Experiment(
    "method_comparison",
    MethodSettings,
    compute,
    inputs,
    keeps_files=True,
    oldest=(
        "method dataset backbone features ways shots queries tasks K eta width steps batch lr val_episodes "
        "test_episodes seed"
    ).split(),
    tolerance={"*_per_second": None, "options": None, "*": 1.0},
)
