"""Theorem 1 on finite worlds: every term of the empirical Bayes objective as an exact sum over t, d and w.

A world is a batch of finite distributions: the inference process q(w, d, t) = q(w|d,t) q(d|t) q(t) and the
generative process p(w, d, t) = p(d|w,t) p(w) q(t). Axes: B worlds, T tasks, D data sets, W weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Inference:
    """The inference process: in Theorem 1's worlds and in Theorem 2's trials."""

    q_t: Tensor  # [B, T]
    q_d: Tensor  # q(d | t), [B, T, D]
    q_w: Tensor  # q(w | d, t), [B, T, D, W]

    @property
    def q_dw(self) -> Tensor:
        """q(d, w | t), [B, T, D, W]."""
        return self.q_d[..., None] * self.q_w

    @property
    def aggregated(self) -> Tensor:
        """The aggregated posterior q(w | t) = sum_d q(w | d, t) q(d | t), [B, T, W]."""
        return self.q_dw.sum(-2)

    def over_tasks(self, values: Tensor) -> Tensor:
        """E_q(t) of values [B, T]."""
        return (self.q_t * values).sum(-1)


@dataclass(frozen=True)
class World(Inference):
    p_w: Tensor  # p(w), [B, W]
    p_d: Tensor  # p(d | w, t), [B, T, W, D]


def terms(world: World) -> dict[str, Tensor]:
    """The terms of Theorem 1 and of its proof, each by its own definition, [B]."""
    q_dw, q_w_given_t, p_w, p_d = world.q_dw, world.aggregated, world.p_w[:, None], world.p_d.mT
    loss = -torch.xlogy(world.q_w, p_d).sum(-1)  # E_q(w|d,t) -log p(d|w,t), [B, T, D]
    by_task = {
        # E_q(d|t) [ E_q(w|d,t) -log p(d|w,t) + KL(q(w|d,t) ‖ p(w)) ], which eq. (popeb) averages over tasks
        "popeb": (world.q_d * (loss + kl_discrete(world.q_w, p_w[:, None]))).sum(-1),
        # I_q(w; d | t) = KL(q(w, d | t) ‖ q(w | t) q(d | t))
        "information": mutual_information(q_dw),
        # H_{q,p}(d | w, t) = E_q -log p(d | w, t)
        "cross_entropy": -torch.xlogy(q_dw, p_d).sum((-2, -1)),
        # H_q(d | w, t) = E_q -log q(d | w, t)
        "conditional_entropy": -kl_discrete(q_dw, q_w_given_t[..., None, :]).sum(-1),
        # H_q(d | t), which q(w | d, t) has no part in
        "data_entropy": torch.special.entr(world.q_d).sum(-1),
        # KL(q(w | t) ‖ p(w))
        "prior_gap": kl_discrete(q_w_given_t, p_w),
    }
    found = {name: world.over_tasks(values) for name, values in by_task.items()}
    found["ibt"] = found["information"] + found["cross_entropy"]
    found["ib"] = found["information"] + found["conditional_entropy"]
    return found | {"task_information": mutual_information(world.q_t[..., None] * q_w_given_t)}  # I_q(w; t)


def kl_discrete(q: Tensor, p: Tensor) -> Tensor:
    """KL(q ‖ p) of tables over the last axis, with 0 log 0 = 0: [..., m] -> [...]."""
    return (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)


def mutual_information(joint: Tensor) -> Tensor:
    """Mutual information of the last two axes of a joint table [..., D, W]: [...]."""
    one, other = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    # log(one) + log(other) rather than the log of their product, which can underflow where joint does not
    return (torch.xlogy(joint, joint) - torch.xlogy(joint, one) - torch.xlogy(joint, other)).sum((-2, -1))


def with_optimal_model(world: World) -> World:
    """The same q with the p(w) and p(d | w, t) that minimise eq. (popeb): q's own marginal and q(d | w, t)."""
    p_w = torch.einsum("bt,btw->bw", world.q_t, world.aggregated)
    return replace(world, p_w=p_w, p_d=(world.q_dw / world.aggregated[..., None, :]).mT)


def with_tempered_posterior(world: World, beta: float | Tensor) -> World:
    """The same world with q(w | d, t) proportional to p(w) p(d | w, t)^β, once for each β if there are many [B].

    β = 0 is the prior (deaf), β = 1 the true posterior p(w | d, t), and large β tends to maximum likelihood.
    """
    beta = torch.as_tensor(beta)[..., None, None, None]
    return replace(world, q_w=torch.softmax(world.p_w.log()[:, None, None, :] + beta * world.p_d.mT.log(), -1))


def dirichlet(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Random tables over the last axis. The first axis is the world: each has its own concentration in [0.1, 10]."""
    concentration = 10 ** rng.uniform(-1, 1, size=(shape[0],) + (1,) * (len(shape) - 1))
    gamma = rng.standard_gamma(np.broadcast_to(concentration, shape))
    gamma = np.maximum(gamma, 1e-100)  # an underflow to 0 would make a KL infinite
    return torch.from_numpy(gamma / gamma.sum(-1, keepdims=True))


def random_world(worlds: int, tasks: int, datasets: int, weights: int, rng: np.random.Generator) -> World:
    """Five unrelated random tables: nothing is aligned, so Theorem 1 is loose."""
    return World(
        q_t=dirichlet((worlds, tasks), rng),
        q_d=dirichlet((worlds, tasks, datasets), rng),
        q_w=dirichlet((worlds, tasks, datasets, weights), rng),
        p_w=dirichlet((worlds, weights), rng),
        p_d=dirichlet((worlds, tasks, weights, datasets), rng),
    )


def aligned_world(worlds: int, tasks: int, datasets: int, weights: int, rng: np.random.Generator) -> World:
    """Worlds that satisfy Theorem 1's conditions for equality, with an informative q(w | d, t).

    Start from the generative side, p(w) p(d|w,t), and let q(d|t) and q(w|d,t) be its marginal and its posterior: then
    q(d|w,t) = p(d|w,t), and the aggregated posterior is p(w) for every task, although tasks differ.
    """
    p_w, p_d = dirichlet((worlds, weights), rng), dirichlet((worlds, tasks, weights, datasets), rng)
    joint = (p_w[:, None, :, None] * p_d).mT
    q_d = joint.sum(-1)
    return World(q_t=dirichlet((worlds, tasks), rng), q_d=q_d, q_w=joint / q_d[..., None], p_w=p_w, p_d=p_d)
