"""Every method on the same features, tasks and training budget: SIB with three kinds of xi, heads that are trained as
SIB is, and methods that learn nothing.

Trained methods see a stream of tasks whose queries are balanced, Dirichlet(2), or every second time either, and their
best checkpoint is chosen on validation classes with such tasks. Options of methods that learn nothing are chosen on
validation classes, separately for balanced and for unbalanced queries.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

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
from sibcore.xi import SetXi
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
QUERIES = {"balanced": None, "dirichlet2": ALPHA}  # in testing
Tasks = Literal["balanced", "dirichlet2", "mixture"]
# Numbers of ways and of queries of a class, other than those of the training: `elsewhere`, so many tasks of each kind.
SHAPES, FEWER = ((5, 1), (5, 5), (5, 50), (2, 15), (10, 15), (20, 15)), 300
SHARES, PROBABILITIES = np.linspace(0.05, 0.6, 12), np.linspace(0.05, 0.95, 19)  # where `response` looks


@parameters
class Contender(Tested):
    """One method, trained where it learns, and tested on balanced and on unbalanced queries."""

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


def contender(p: Contender, **images: Any) -> Record:
    """Return the run of one method."""
    return CONTENDER.run(p, **images)


def inputs(p: Contender, **images: Any) -> Inputs:
    """Return the features, if the method is one that there is."""
    if p.method not in SIBS.keys() | HEADS.keys() | UNTRAINED.keys():
        raise ValueError(f"there is no method {p.method!r}: expected one of {', '.join((*SIBS, *HEADS, *UNTRAINED))}")
    return banks_of(p, **images)


def compute(p: Contender, banks: Banks, folder: Path) -> Numbers:
    """Train the method, or choose its options if it learns nothing, and test it.

    Returns:
        metrics: accuracies in percent, "balanced" and "dirichlet2", each with "..._ci95", "tasks_per_second" in
            testing; of trained methods "validation", "parameters" and "steps_per_second", of others their "options".
        arrays: queries answered rightly in each task, "balanced" and "dirichlet2"; "xi" of a set-aware xi, by
            `response`. With `elsewhere` both also by shape, such as "20way/15each/balanced".
    """
    return _tuned(p, banks) if p.method in UNTRAINED else _trained(p, banks, folder)


def model_of(p: Contender, dim: int) -> nn.Module:
    """A method that learns, before its training."""
    if p.method in HEADS:
        return HEADS[p.method](p.ways, dim, p.seed)
    kind = {"sib": {}, "sib-equivariant": {"equivariant": True}}.get(p.method, {"set_aware": p.width})
    return SIB(p.ways, dim, p.K, p.eta, reduction="mean", seed=p.seed, **kind)


def _trained(p: Contender, banks: Banks, folder: Path) -> Numbers:
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


def _tuned(p: Contender, banks: Banks) -> Numbers:
    cls, bank = UNTRAINED[p.method], banks["val"]
    options = {kind: tune(cls, p.ways, bank.features, tasks(p, bank, "val", a)) for kind, a in QUERIES.items()}
    metrics, arrays = _tested(p, banks, {kind: cls(p.ways, **chosen) for kind, chosen in options.items()})
    return metrics | {"options": options}, arrays


def _tested(p: Contender, banks: Banks, models: dict[str, nn.Module]) -> Numbers:
    began = time.perf_counter()
    metrics, arrays = _scores(p, banks, models)
    metrics["tasks_per_second"] = len(QUERIES) * p.test_episodes / (time.perf_counter() - began)
    for ways, queries in SHAPES if p.elsewhere else ():
        shape = dataclasses.replace(p, ways=ways, queries=queries, test_episodes=FEWER)
        others = {kind: _of_ways(model, p, ways) for kind, model in models.items()}
        for known, more in zip((metrics, arrays), _scores(shape, banks, others), strict=True):
            known |= {f"{ways}way/{queries}each/{name}": value for name, value in more.items()}
    return metrics, arrays


def _scores(p: Contender, banks: Banks, models: dict[str, nn.Module]) -> Numbers:
    """Each kind of test tasks, answered by its model."""
    scores: dict[str, Evaluation] = {}
    for kind, alpha in QUERIES.items():
        fixed = tasks(p, banks["test"], "test", alpha).to(pick_device())
        scores[kind] = evaluate(models[kind], banks["test"].features, fixed)
    return numbers(scores, p.ways * p.queries)


def _of_ways(model: nn.Module, p: Contender, ways: int) -> nn.Module:
    """The same SIB, or method that learns nothing, for another number of ways."""
    if isinstance(model, SIB):
        return resized(model, {"ways": p.ways, "queries": p.queries}, ways, model.dim)
    return type(model)(ways, **model.options)


def _sampler(p: Contender, bank: Features, seed: int) -> EpisodeSampler:
    options = {"alpha": None if p.tasks == "balanced" else ALPHA, "mixed": p.tasks == "mixture"}
    return EpisodeSampler(bank.labels, p.ways, p.shots, p.queries, seed, class_names=bank.classes, **options)


def probe_sets(ways: int, n: int = 75) -> Tensor:
    """Logits [B, n, k]: the first query gives class 0 a probability, the others, sure of theirs, give it a share.

    B runs over SHARES x PROBABILITIES; the other classes share the rest alike.
    """
    share, first = (torch.tensor(values).flatten() for values in np.meshgrid(SHARES, PROBABILITIES, indexing="ij"))
    p = torch.empty(len(share), n, ways, dtype=torch.float64)
    p[:, 0, 0], p[:, 0, 1:] = first, (1 - first[:, None]) / (ways - 1)
    sure = 0.9
    of_first = (torch.arange(1, n) - 0.5) / (n - 1) < share[:, None]  # [B, n - 1]
    other = 1 + torch.arange(n - 1) % (ways - 1)
    label = torch.where(of_first, 0, other)
    p[:, 1:] = (1 - sure) / (ways - 1)
    p[:, 1:].scatter_(2, label.unsqueeze(2), sure)
    return p.log()


@torch.no_grad()
def response(xi: nn.Module, ways: int) -> np.ndarray:
    """-xi of the first query of `probe_sets` and class 0, less the mean over classes, by share and probability.

    Where it is positive, theta_0 moves towards the query.
    """
    logits = probe_sets(ways).to(next(xi.parameters()))
    found = xi(logits)[:, 0]
    push = (found.mean(-1) - found[:, 0]).double().cpu().numpy()
    return push.reshape(len(SHARES), len(PROBABILITIES))


def implied_by_information(ways: int, weight: float = 0.1) -> np.ndarray:
    """`response`, of descent on TIM's loss: `weight` times the queries' entropy, less the entropy of their mean."""
    logits = probe_sets(ways).requires_grad_()
    p = logits.softmax(-1)
    mean = p.mean(1)
    loss = (mean * mean.log()).sum() - weight * (p * p.log()).sum(-1).mean(1).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return -logits.shape[1] * gradient[:, 0, 0].numpy().reshape(len(SHARES), len(PROBABILITIES))


def implied_by_transport(ways: int, rounds: int = 100) -> np.ndarray:
    """`response`, of a step from the queries' probabilities to PT-MAP's, which have equal shares (Sinkhorn)."""
    p = probe_sets(ways).softmax(-1)
    q = p
    for _ in range(rounds):
        q = q / (q.mean(1, keepdim=True) * ways)
        q = q / q.sum(-1, keepdim=True)
    return (q - p)[:, 0, 0].numpy().reshape(len(SHARES), len(PROBABILITIES))


CONTENDER = Experiment(
    "contender",
    Contender,
    compute,
    inputs,
    keeps_files=True,
    oldest=(
        "method dataset backbone features ways shots queries tasks K eta width steps batch lr val_episodes "
        "test_episodes seed"
    ).split(),
    tolerance={"*_per_second": None, "options": None, "*": 1.0},
)
