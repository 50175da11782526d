"""Theorem 1 on finite worlds: every term of the empirical Bayes objective as an exact sum over t, d and w.

A world is a batch of finite distributions: the inference process q(w, d, t) = q(w|d,t) q(d|t) q(t) and the
generative process p(w, d, t) = p(d|w,t) p(w) q(t). Axes: B worlds, T tasks, D data sets, W weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sibrepro.theory.bayes import kl_discrete


@dataclass(frozen=True)
class World:
    q_t: Tensor  # [B, T]
    q_d: Tensor  # q(d | t), [B, T, D]
    q_w: Tensor  # q(w | d, t), [B, T, D, W]
    p_w: Tensor  # p(w), [B, W]
    p_d: Tensor  # p(d | w, t), [B, T, W, D]

    @property
    def q_dw(self) -> Tensor:
        """q(d, w | t), [B, T, D, W]."""
        return self.q_d[..., None] * self.q_w

    @property
    def aggregated(self) -> Tensor:
        """The aggregated posterior q(w | t) = sum_d q(w | d, t) q(d | t), [B, T, W]."""
        return self.q_dw.sum(-2)


def objective(world: World) -> Tensor:
    """Eq. (popeb) as it is defined: E_q(t) E_q(d|t) [ E_q(w|d,t) -log p(d|w,t) + KL(q(w|d,t) ‖ p(w)) ], [B]."""
    expected_loss = -torch.xlogy(world.q_w, world.p_d.mT).sum(-1)
    per_dataset = expected_loss + kl_discrete(world.q_w, world.p_w[:, None, None, :])
    return _over_tasks(world, (world.q_d * per_dataset).sum(-1))


def mutual_information(world: World) -> Tensor:
    """I_q(w; d | t) = E_q(t) KL(q(w, d | t) ‖ q(w | t) q(d | t)), [B]."""
    return _over_tasks(world, mutual_information_by_task(world.q_dw))


def mutual_information_by_task(joint: Tensor) -> Tensor:
    """Mutual information of the last two axes of a joint table [..., D, W]: [...]."""
    one, other = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    # log(one) + log(other) rather than the log of their product, which can underflow where joint does not
    return (torch.xlogy(joint, joint) - torch.xlogy(joint, one) - torch.xlogy(joint, other)).sum((-2, -1))


def cross_entropy(world: World) -> Tensor:
    """H_{q,p}(d | w, t) = E_q(w,d,t) -log p(d | w, t), [B]."""
    return _over_tasks(world, -torch.xlogy(world.q_dw, world.p_d.mT).sum((-2, -1)))


def conditional_entropy(world: World) -> Tensor:
    """H_q(d | w, t) = E_q(w,d,t) -log q(d | w, t), [B]."""
    log_ratio = torch.xlogy(world.q_dw, world.q_dw) - torch.xlogy(world.q_dw, world.aggregated[..., None, :])
    return _over_tasks(world, -log_ratio.sum((-2, -1)))


def data_entropy(world: World) -> Tensor:
    """H_q(d | t), which q(w | d, t) has no part in, [B]."""
    return _over_tasks(world, -torch.xlogy(world.q_d, world.q_d).sum(-1))


def prior_gap(world: World) -> Tensor:
    """E_q(t) KL(q(w | t) ‖ p(w)), [B]."""
    return _over_tasks(world, kl_discrete(world.aggregated, world.p_w[:, None, :]))


def task_information(world: World) -> Tensor:
    """I_q(w; t), [B]."""
    return mutual_information_by_task(world.q_t[..., None] * world.aggregated)


def with_optimal_model(world: World) -> World:
    """The same q with the p(w) and p(d | w, t) that minimise eq. (popeb): q's own marginal and q(d | w, t)."""
    p_w = torch.einsum("bt,btw->bw", world.q_t, world.aggregated)
    return replace(world, p_w=p_w, p_d=(world.q_dw / world.aggregated[..., None, :]).mT)


def with_tempered_posterior(world: World, beta: float) -> World:
    """The same world with q(w | d, t) proportional to p(w) p(d | w, t)^β.

    β = 0 is the prior (deaf), β = 1 the true posterior p(w | d, t), and large β tends to maximum likelihood.
    """
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


def _over_tasks(world: World, values: Tensor) -> Tensor:
    """E_q(t) of values [B, T]."""
    return (world.q_t * values).sum(-1)
