"""Theorem 1 on finite worlds: every term of the empirical Bayes objective as an exact sum over t, d and w.

A world is a pair of finite distributions: the inference process q(w, d, t) = q(w|d,t) q(d|t) q(t) and the generative
process p(w, d, t) = p(d|w,t) p(w) q(t).

Shapes: B worlds, T tasks t, D data sets d, W weights w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Inference:
    """The inference process, which the worlds of Theorem 1 and the learners of Theorem 2 have in common.

    Attributes:
        q_t: q(t), `[B, T]`.
        q_d: q(d | t), `[B, T, D]`.
        q_w: q(w | d, t), `[B, T, D, W]`.
    """

    q_t: Tensor
    q_d: Tensor
    q_w: Tensor

    @property
    def q_dw(self) -> Tensor:
        """Return q(d, w | t), `[B, T, D, W]`."""
        return self.q_d[..., None] * self.q_w

    @property
    def aggregated(self) -> Tensor:
        """Return the aggregated posterior q(w | t) = sum_d q(w | d, t) q(d | t), `[B, T, W]`."""
        return self.q_dw.sum(-2)

    def over_tasks(self, values: Tensor) -> Tensor:
        """Return the expectation under q(t) of values `[B, T]`, `[B]`."""
        return (self.q_t * values).sum(-1)


@dataclass(frozen=True)
class World(Inference):
    """An inference process together with the generative process.

    Attributes:
        p_w: prior p(w), `[B, W]`.
        p_d: likelihood p(d | w, t), `[B, T, W, D]`.
    """

    p_w: Tensor
    p_d: Tensor


def terms(world: World) -> dict[str, Tensor]:
    """Return the terms of Theorem 1 and of its proof, each computed from its own definition, `[B]`.

    popeb                E_q(d|t) [ E_q(w|d,t) -log p(d|w,t) + KL(q(w|d,t) ‖ p(w)) ], the objective, eq. (popeb)
    information          I_q(w; d | t) = KL(q(w, d | t) ‖ q(w | t) q(d | t))
    cross_entropy        H_{q,p}(d | w, t) = E_q -log p(d | w, t)
    conditional_entropy  H_q(d | w, t) = E_q -log q(d | w, t)
    data_entropy         H_q(d | t), which does not depend on q(w | d, t)
    prior_gap            KL(q(w | t) ‖ p(w))
    ibt                  information + cross_entropy
    ib                   information + conditional_entropy, the lower bound of Theorem 1
    task_information     I_q(w; t)
    """
    q_dw, q_w_given_t, p_w, p_d = world.q_dw, world.aggregated, world.p_w[:, None], world.p_d.mT
    loss = -torch.xlogy(world.q_w, p_d).sum(-1)  # E_q(w|d,t) -log p(d|w,t), [B, T, D]
    by_task = {
        "popeb": (world.q_d * (loss + kl_discrete(world.q_w, p_w[:, None]))).sum(-1),
        "information": mutual_information(q_dw),
        "cross_entropy": -torch.xlogy(q_dw, p_d).sum((-2, -1)),
        "conditional_entropy": -kl_discrete(q_dw, q_w_given_t[..., None, :]).sum(-1),
        "data_entropy": torch.special.entr(world.q_d).sum(-1),
        "prior_gap": kl_discrete(q_w_given_t, p_w),
    }
    found = {name: world.over_tasks(values) for name, values in by_task.items()}
    found["ibt"] = found["information"] + found["cross_entropy"]
    found["ib"] = found["information"] + found["conditional_entropy"]
    found["task_information"] = mutual_information(world.q_t[..., None] * q_w_given_t)
    return found


def kl_discrete(q: Tensor, p: Tensor) -> Tensor:
    """Return KL(q ‖ p) of tables `[..., m]` over the last axis, `[...]`, with 0 log 0 = 0."""
    return (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)


def mutual_information(joint: Tensor) -> Tensor:
    """Return the mutual information of the last two axes of joint tables `[..., D, W]`, `[...]`."""
    one, other = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    # log(one) + log(other) rather than the log of their product, which can underflow where joint does not
    return (torch.xlogy(joint, joint) - torch.xlogy(joint, one) - torch.xlogy(joint, other)).sum((-2, -1))


def with_optimal_model(world: World) -> World:
    """Return the world with the p(w) and p(d | w, t) that minimise eq. (popeb): q's own marginal and q(d | w, t)."""
    p_w = torch.einsum("bt,btw->bw", world.q_t, world.aggregated)
    return replace(world, p_w=p_w, p_d=(world.q_dw / world.aggregated[..., None, :]).mT)


def with_tempered_posterior(world: World, beta: float | Tensor) -> World:
    """Return the world with q(w | d, t) proportional to p(w) p(d | w, t)^β.

    β = 0 gives the prior, which ignores the data, and β = 1 the true posterior p(w | d, t). Large β tends to maximum
    likelihood. If β is a tensor `[B]`, a single world becomes B worlds, one for each β.
    """
    beta = torch.as_tensor(beta)[..., None, None, None]
    logits = world.p_w.log()[:, None, None, :] + beta * world.p_d.mT.log()
    return replace(world, q_w=torch.softmax(logits, -1))


def dirichlet(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw random tables that are distributions over the last axis.

    The first axis is the world: each world has its own concentration, between 0.1 and 10.
    """
    concentration = 10 ** rng.uniform(-1, 1, size=(shape[0],) + (1,) * (len(shape) - 1))
    gamma = rng.standard_gamma(np.broadcast_to(concentration, shape))
    gamma = np.maximum(gamma, 1e-100)  # an underflow to 0 would make a KL infinite
    return torch.from_numpy(gamma / gamma.sum(-1, keepdims=True))


def random_world(worlds: int, tasks: int, datasets: int, weights: int, rng: np.random.Generator) -> World:
    """Draw worlds of five unrelated random tables. Nothing is aligned, so Theorem 1 is not tight."""
    return World(
        q_t=dirichlet((worlds, tasks), rng),
        q_d=dirichlet((worlds, tasks, datasets), rng),
        q_w=dirichlet((worlds, tasks, datasets, weights), rng),
        p_w=dirichlet((worlds, weights), rng),
        p_d=dirichlet((worlds, tasks, weights, datasets), rng),
    )


def aligned_world(worlds: int, tasks: int, datasets: int, weights: int, rng: np.random.Generator) -> World:
    """Draw worlds that satisfy Theorem 1's conditions for equality, with an informative q(w | d, t).

    The generative side, p(w) p(d|w,t), is random. Its marginal becomes q(d|t), and its posterior q(w|d,t). Then
    q(d|w,t) = p(d|w,t), and the aggregated posterior is p(w) for every task, although tasks differ.
    """
    p_w, p_d = dirichlet((worlds, weights), rng), dirichlet((worlds, tasks, weights, datasets), rng)
    joint = (p_w[:, None, :, None] * p_d).mT
    q_d = joint.sum(-1)
    return World(q_t=dirichlet((worlds, tasks), rng), q_d=q_d, q_w=joint / q_d[..., None], p_w=p_w, p_d=p_d)
