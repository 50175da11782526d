"""SIB-Rot: multi-source domain adaptation without labels of the target (the appendix's "zero-shot classification").

A minibatch x of one domain is a task. It has no support set; which way up its images are stands in for one:

    theta^0 = lambda - eta grad_theta L( z^(y^(f(x), theta), f(x)), z )          eq. (ssup), z: each image's turn
    theta^{k+1} = theta^k - eta sum_i xi(y^_i) dy^_i/dw                          eq. (sib), by `SIB.descend`

Where the paper is silent: y^ are logits, as for xi; z^ is linear in y^ and f(x); a training step has one task for each
source domain, so that a task is of one domain as it is at test time ("mixed" is one task of all sources instead);
theta^0 looks at all turns of a task's images, the class predictions at the upright ones alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.seeds import combine, gamma_quantile
from sibcore.settings import Settings, one_of, setting
from sibcore.sib import SIB, unit
from sibcore.step import cosine_step, cosines

TURNS = 4  # of an image: by 0, 90, 180 and 270 degrees

Order = Literal["shuffled", "file"]


class Method(NamedTuple):
    """What a method does besides classifying with λ.

    Attributes:
        learns_turns: learns to tell turned images apart as a second task.
        starts_by_turns: makes θ⁰ by a step on the rotation loss, eq. (ssup).
        descends: takes synthetic gradient steps, eq. (sib).
    """

    learns_turns: bool
    starts_by_turns: bool
    descends: bool


METHODS = {
    "source-only": Method(False, False, False),  # "deep all"
    "Rot": Method(True, False, False),  # Xu et al., 2019
    "SIB": Method(True, False, True),  # theta^0 = lambda, which the paper calls insufficient
    "SIB-Rot": Method(True, True, True),
}


class Adapter(nn.Module):
    """A feature network f, the class weights λ, a SIB with its ξ, and the rotation head ẑ.

    SIB's options are those of the release, as for few-shot episodes, except that a step takes the mean over a task's
    images instead of their sum: minibatches at test time may have another size than in training.
    """

    def __init__(
        self,
        f: nn.Module,
        start: Tensor,
        centre: Tensor,
        K: int = 3,
        eta: float = 0.03,
        method: str = "SIB-Rot",
        seed: int = 0,
    ) -> None:
        """Make an untrained model.

        Args:
            f: the part of the feature network that learns; maps inputs `[n, ...]` of a bank to features `[n, d]`.
            start: the first λ, `[k, d]`.
            centre: where unit features are seen from, `[d]`: a mean of source images before training. The features of
                a ReLU network all point in similar directions, which leaves a cosine classifier little room.
            K: number of synthetic gradient steps.
            eta: step size η.
            method: a key of `METHODS`.
            seed: seed of ξ's first weights.
        """
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"there is no method {method!r}: expected one of {', '.join(METHODS)}")
        if K and not METHODS[method].descends:
            raise ValueError(f"{method} takes no synthetic gradient steps: K must be 0, not {K}")
        ways, dim = start.shape
        self.f, self.method = f, METHODS[method]
        self.sib = SIB(ways, dim, K, eta, reduction="mean", seed=seed)
        self.sib.prototype_weight.requires_grad_(False)  # belongs to few-shot's lambda
        self.start = nn.Parameter(start.clone())  # lambda
        self.register_buffer("centre", centre.clone())
        self.turn_head = nn.Linear(ways + dim, TURNS)
        nn.init.zeros_(self.turn_head.weight)
        nn.init.zeros_(self.turn_head.bias)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the unit features `[B, n, d]` of inputs `[B, n, ...]`."""
        flat = self.f(inputs.flatten(0, 1).float())
        return unit(unit(flat) - self.centre).unflatten(0, inputs.shape[:2])

    def theta(self, upright: Tensor, turned: Tensor, turns: Tensor) -> list[Tensor]:
        """Return θ⁰, ..., θᴷ, each `[B, k, d]`.

        Args:
            upright: unit features of the images, `[B, n, d]`.
            turned: unit features of turned images, `[B, m, d]`.
            turns: how far each of those is turned, in quarters, `[B, m]`.
        """
        theta = self.start.expand(len(upright), -1, -1)
        if self.method.starts_by_turns:
            theta = self.turn_step(theta, turned, turns, upright.shape[1])
        return self.sib.descend(theta, upright)

    def turn_step(self, theta: Tensor, turned: Tensor, turns: Tensor, n: int) -> Tensor:
        """Return θ after the step of eq. (ssup), in closed form.

        The loss is the mean over an image's turns, and over the n images the mean or the sum as in SIB.
        """
        wrong = self.turn_logits(turned, theta).softmax(-1) - F.one_hot(turns, TURNS)  # dL/dz^
        error = wrong @ self.turn_head.weight[:, : self.sib.ways]  # dL/dy^
        rate = self.sib.rate(n) * (n / turned.shape[1])
        cosine, norm = cosines(turned, theta)
        return cosine_step(theta, theta, norm, turned, cosine, rate * error.mT)

    def turn_logits(self, features: Tensor, theta: Tensor) -> Tensor:
        """Return ẑ `[B, m, 4]` of unit features `[B, m, d]`. Xu et al.'s ẑ sees the features alone."""
        if not self.method.descends:
            return F.linear(features, self.turn_head.weight[:, self.sib.ways :], self.turn_head.bias)
        return self.turn_head(torch.cat([self.sib.classify(features, theta), features], -1))

    def turn_loss(self, turned: Tensor, turns: Tensor) -> Tensor:
        """Return the loss of telling turns apart, for f and ẑ: class weights see rotations through eq. (ssup) alone."""
        logits = self.turn_logits(turned, self.start.detach().expand(len(turned), -1, -1))
        return F.cross_entropy(logits.flatten(0, 1), turns.flatten())


class Bank(Protocol):
    """Where the inputs of f come from: images under four rotations, or activations of a frozen network."""

    labels: Tensor

    def take(self, rows: Tensor, turns: Tensor) -> Tensor:
        """Return the images of these rows, each in its turn, `[*rows.shape, ...]`."""


@dataclass(frozen=True, kw_only=True)
class Schedule(Settings):
    """The settings of a training."""

    tasks: Literal["domain", "mixed"] = one_of("domain", "mixed")  # one task for each source domain, or one of all
    steps: int = setting(2000, least=1)
    batch: int = setting(32, least=1)  # images of each source domain, and of the target, in a step
    lr: float = setting(1e-4, above=0)  # Adam's
    turns: Literal["all", "one"] = one_of("all", "one")  # of an image in a training step; at test time always all
    turn_weight: float = setting(1.0, least=0)  # of the rotation loss
    alpha: float = setting(0.0, least=0)  # Dirichlet spread of a source task's class proportions; 0: as they are
    seed: int = setting(0, least=0)


def train(
    model: Adapter, bank: Bank, sources: Sequence[Tensor], target: Tensor, schedule: Schedule
) -> list[dict[str, Any]]:
    """Train a model in place. Its f stays in evaluation mode, so that batch norms keep their statistics.

    Args:
        model: the model.
        bank: the images.
        sources: the labelled rows of each source domain.
        target: the rows of the target domain, whose labels are not used.
        schedule: the settings.

    Returns:
        The history in 20 rows.
    """
    model.eval()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], schedule.lr)
    generator = torch.Generator().manual_seed(schedule.seed)
    history, sums, every, began = [], np.zeros(3), max(1, schedule.steps // 20), time.perf_counter()
    for step in range(1, schedule.steps + 1):
        loss, turn_loss, accuracy = _losses(model, bank, sources, target, schedule, generator)
        optimizer.zero_grad()
        (loss + schedule.turn_weight * turn_loss).backward()
        optimizer.step()
        sums += (loss.item(), turn_loss.item(), accuracy.item())
        if step % every == 0 or step == schedule.steps:
            means = sums / ((step - 1) % every + 1)
            if not np.isfinite(means).all():
                raise ValueError(f"the loss became NaN or infinite before step {step}: lower lr or eta")
            rate = step / (time.perf_counter() - began)
            named = zip(("loss", "turn_loss", "accuracy"), means.tolist(), strict=True)
            history.append({"step": step, **dict(named), "steps_per_second": rate})
            sums[:] = 0
    return history


def _losses(
    model: Adapter,
    bank: Bank,
    sources: Sequence[Tensor],
    target: Tensor,
    schedule: Schedule,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cross-entropy of the source tasks at θᴷ, the rotation loss, and the accuracy."""
    rows = torch.stack([draw(rows, bank.labels[rows], schedule, generator) for rows in sources])  # [B, n]
    unlabelled = target[torch.randperm(len(target), generator=generator)[: schedule.batch]][None]
    if schedule.tasks == "mixed":
        rows = rows.view(1, -1)
    upright, turned, turns = _task_features(model, bank, rows, schedule, generator)
    theta = model.theta(upright, turned, turns)
    logits, labels = model.sib.classify(upright, theta[-1]).flatten(0, 1), bank.labels[rows].flatten()
    turn_loss = upright.new_zeros(())
    if model.method.learns_turns:
        elsewhere = _task_features(model, bank, unlabelled, schedule, generator)[1:]
        turn_loss = (model.turn_loss(turned, turns) + model.turn_loss(*elsewhere)) / 2
    return F.cross_entropy(logits, labels), turn_loss, (logits.argmax(-1) == labels).float().mean()


def draw(rows: Tensor, labels: Tensor, schedule: Schedule, generator: torch.Generator) -> Tensor:
    """Draw the rows `[n]` of a source task.

    With `alpha` its classes come in random proportions, as those of the target may.
    """
    if not schedule.alpha:
        return rows[torch.randperm(len(rows), generator=generator)[: schedule.batch].to(rows.device)]
    counts = labels.bincount().cpu().double()
    uniform = torch.rand(len(counts), generator=generator, dtype=torch.float64)
    gamma = gamma_quantile(schedule.alpha, uniform)  # normalised by its sum it is a draw from a Dirichlet
    weights = (gamma / counts)[labels.cpu()]
    return rows[torch.multinomial(weights, schedule.batch, True, generator=generator).to(rows.device)]


def _task_features(
    model: Adapter, bank: Bank, rows: Tensor, schedule: Schedule, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit features of upright images `[B, n, d]` and of turned ones `[B, m, d]`, and their turns `[B, m]`."""
    n, none = rows.shape[1], torch.zeros_like(rows)
    if not model.method.learns_turns:
        features = model.features(bank.take(rows, none))
        return features, features, none
    if schedule.turns == "all":
        turns = torch.arange(TURNS, device=rows.device).repeat_interleave(n).expand(len(rows), -1)
        features = model.features(bank.take(rows.repeat(1, TURNS), turns))
        return features[:, :n], features, turns
    turns = torch.randint(TURNS, rows.shape, generator=generator).to(rows.device)
    features = model.features(bank.take(rows.repeat(1, 2), torch.cat([none, turns], 1)))
    return features[:, :n], features[:, n:], turns


@torch.no_grad()
def embed(model: Adapter, bank: Bank, rows: Tensor) -> Tensor:
    """Return unit features of images in all turns, `[4, N, d]`, or upright, `[1, N, d]`, as the method needs."""
    every = torch.arange(TURNS if model.method.starts_by_turns else 1, device=rows.device)[:, None]
    features = []
    for part in rows.split(64):
        inputs = bank.take(part.expand(len(every), -1), every.expand(-1, len(part)))
        features.append(model.features(inputs))
    return torch.cat(features, 1)


def dealt(count: int, batch: int, order: Order, seed: int) -> tuple[Tensor, ...]:
    """Return the places 0 to count - 1 in minibatches of at most `batch`, all of nearly the same size."""
    generator = torch.Generator().manual_seed(combine(seed, batch))
    sequence = torch.randperm(count, generator=generator) if order == "shuffled" else torch.arange(count)
    return sequence.tensor_split(math.ceil(count / batch))


@torch.no_grad()
def predict(model: Adapter, features: Tensor, batch: int, order: Order = "shuffled", seed: int = 0) -> Tensor:
    """Return the predicted class of every image, `[N]`.

    Args:
        model: a trained model.
        features: what `embed` returned.
        batch: the largest minibatch; a minibatch is a task.
        order: "shuffled" deals the images out at random, "file" in the order of the files, in PACS class after class.
        seed: seed of the random order.
    """
    seen, count, dim = features.shape
    predicted = torch.full((count,), -1, device=features.device)
    for part in dealt(count, batch, order, seed):
        upright, turned = features[:1, part], features[:, part].reshape(1, -1, dim)
        turns = torch.arange(seen, device=features.device).repeat_interleave(len(part))[None]
        theta = model.theta(upright, turned, turns)
        predicted[part] = model.sib.classify(upright, theta[-1])[0].argmax(-1)
    return predicted
