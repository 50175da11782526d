"""Theorem 2 and its corollary on finite worlds: the generalisation gap, its bound, and every step in between.

A data set d = (z_1, ..., z_n) is one of the Z^n sequences over a finite alphabet, drawn iid from q(z | t).
Axes: B worlds, T tasks, Z letters, D = Z^n data sets, W weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sibrepro.theory.bottleneck import dirichlet, mutual_information_by_task

MOST_DATASETS = 4096


@dataclass(frozen=True)
class Trial:
    """A learner: it sees d ~ q(d | t) and answers with w ~ q(w | d, t)."""

    q_t: Tensor  # [B, T]
    q_z: Tensor  # q(z | t), [B, T, Z]
    q_w: Tensor  # q(w | d, t), [B, T, D, W]
    loss: Tensor  # l_t(w, z), [B, T, W, Z]
    n: int

    @property
    def sequences(self) -> Tensor:
        return sequences(self.q_z.shape[-1], self.n)

    @property
    def q_d(self) -> Tensor:
        """q(d | t) = prod_i q(z_i | t), [B, T, D]."""
        return self.q_z[..., self.sequences].prod(-1)

    @property
    def q_dw(self) -> Tensor:
        return self.q_d[..., None] * self.q_w

    @property
    def aggregated(self) -> Tensor:
        """q(w | t), [B, T, W]."""
        return self.q_dw.sum(-2)

    @property
    def empirical_loss(self) -> Tensor:
        """L_t(w, d) = 1/n sum_i l_t(w, z_i), [B, T, D, W]."""
        return self.loss[..., self.sequences].mean(-1).mT


def sequences(letters: int, n: int) -> Tensor:
    """All letters^n data sets as rows of letters, [D, n]."""
    if letters**n > MOST_DATASETS:
        raise ValueError(
            f"{letters} letters and n = {n} make {letters}^{n} = {letters**n} data sets, and each is enumerated: "
            f"at most {MOST_DATASETS} are allowed, so choose a smaller alphabet or n"
        )
    return torch.cartesian_prod(*[torch.arange(letters)] * n).reshape(-1, n)


def gap(trial: Trial) -> Tensor:
    """gen(q) = E_q(t) [ E_q(w|t)q(d|t) L_t - E_q(w,d|t) L_t ], [B]."""
    product = trial.q_d[..., None] * trial.aggregated[..., None, :]
    return (trial.q_t * ((product - trial.q_dw) * trial.empirical_loss).sum((-2, -1))).sum(-1)


def empirical_risk(trial: Trial) -> Tensor:
    """E_q(w,d,t) L_t(w, d), [B]."""
    return (trial.q_t * (trial.q_dw * trial.empirical_loss).sum((-2, -1))).sum(-1)


def information(trial: Trial) -> Tensor:
    """I_q(w; d | t = t) for each task, [B, T]."""
    return mutual_information_by_task(trial.q_dw)


def single_information(trial: Trial) -> Tensor:
    """I_q(w; z_i | t = t) for each task and each i, [B, T, n]."""
    letters = trial.q_z.shape[-1]
    columns = [torch.nn.functional.one_hot(column, letters).to(trial.q_w.dtype) for column in trial.sequences.T]
    joints = [torch.einsum("btdw,dz->btzw", trial.q_dw, column) for column in columns]
    return torch.stack([mutual_information_by_task(joint) for joint in joints], -1)


def variance_proxy(trial: Trial) -> Tensor:
    """Theorem 2's sigma², the smallest that serves every task, for l_t(w, z) under q(w|t) q(z|t): [B]."""
    probabilities = trial.aggregated[..., :, None] * trial.q_z[..., None, :]
    return subgaussian_variance(trial.loss.flatten(-2), probabilities.flatten(-2)).amax(-1)


def empirical_variance_proxy(trial: Trial) -> Tensor:
    """The same for L_t(w, d) under q(w|t) q(d|t), of which the paper's proof says sigma²/n: [B]."""
    probabilities = trial.q_d[..., None] * trial.aggregated[..., None, :]
    return subgaussian_variance(trial.empirical_loss.flatten(-2), probabilities.flatten(-2)).amax(-1)


def hoeffding_variance(trial: Trial) -> Tensor:
    """The cruder sigma² = (range / 2)² of any bounded loss, [B]."""
    flat = trial.loss.flatten(-2)
    return ((flat.amax(-1) - flat.amin(-1)) / 2).square().amax(-1)


def bounds(trial: Trial, sigma2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three right-hand sides of the repaired proof, each at most the next; the last is Theorem 2's. Each [B].

    1. E_t 1/n sum_i sqrt(2 sigma² I(w; z_i | t = t))      the lemma, once for each z_i
    2. sqrt(2 sigma²/n sum_i I(w; z_i | t))                Jensen
    3. sqrt(2 sigma²/n I(w; d | t))                        the z_i are independent given t
    """
    each = single_information(trial)
    lemma = (trial.q_t * (2 * sigma2[:, None, None] * each).clamp_min(0).sqrt().mean(-1)).sum(-1)
    jensen = (2 * sigma2 / trial.n * (trial.q_t * each.sum(-1)).sum(-1)).clamp_min(0).sqrt()
    theorem = (2 * sigma2 / trial.n * (trial.q_t * information(trial)).sum(-1)).clamp_min(0).sqrt()
    return lemma, jensen, theorem


def subgaussian_variance(values: Tensor, probabilities: Tensor) -> Tensor:
    """The smallest sigma² with log E exp(λ(X - EX)) <= λ² sigma² / 2 for all λ: tables [..., m] -> [...].

    It is the supremum over λ of 2 log E exp(λ(X - EX)) / λ², whose limit at λ = 0 is the variance. A grid of both signs
    over five decades is refined three times around its best point; what it misses makes sigma² smaller, not larger.
    """
    centred = values - (probabilities * values).sum(-1, keepdim=True)
    variance = (probabilities * centred**2).sum(-1)
    scale = centred.abs().amax(-1).clamp_min(torch.finfo(values.dtype).tiny)
    unit = (centred / scale[..., None])[..., None, None, :]
    log_p = probabilities.log()[..., None, None, :]
    sign = torch.tensor([[1.0], [-1.0]], dtype=values.dtype, device=values.device)
    centre = torch.full((*variance.shape, 2, 1), math.log(10) / 2, dtype=values.dtype, device=values.device)
    reach = 2.5 * math.log(10)  # λ from 1e-2 to 1e3, in units of 1 / max |X - EX|
    for points in (61, 21, 21, 21):
        grid = centre + reach * torch.linspace(-1, 1, points, dtype=values.dtype, device=values.device)
        lam = sign * grid.exp()
        ratio = 2 * torch.logsumexp(lam[..., None] * unit + log_p, -1) / lam**2
        best, at = ratio.max(-1, keepdim=True)
        centre = grid.gather(-1, at)
        reach = 2 * reach / (points - 1)
    return torch.maximum(variance, best.amax((-2, -1)) * scale**2)


def gibbs(logits: Tensor) -> Tensor:
    """q(w | d, t) proportional to exp(logits), over the last axis."""
    return torch.softmax(logits, -1)


def random_trial(worlds: int, tasks: int, letters: int, n: int, weights: int, rng: np.random.Generator) -> Trial:
    """Learners from deaf (w independent of d) to deterministic, and from empirical risk minimisers to pure noise.

    q(w | d, t) is proportional to exp(β [(a - 1) n L_t(w, d) + a g(w, d, t)]) with g Gaussian, β in [0.01, 100] and
    a in [0, 1] by world; half of the worlds have 0/1 losses, the others Gaussian ones.
    """
    table = rng.standard_normal((worlds, tasks, weights, letters))
    table[..., 0, 0], table[..., -1, -1] = -1, 1  # so that no 0/1 loss is constant
    zero_one = np.arange(worlds)[:, None, None, None] % 2 == 0
    loss = torch.from_numpy(np.where(zero_one, table > 0, table).astype(float))
    beta = torch.from_numpy(10 ** rng.uniform(-2, 2, size=(worlds, 1, 1, 1)))
    a = torch.from_numpy(rng.uniform(size=(worlds, 1, 1, 1)))
    risk = loss[..., sequences(letters, n)].sum(-1).mT
    g = torch.from_numpy(rng.standard_normal(tuple(risk.shape)))
    q_t, q_z = dirichlet((worlds, tasks), rng), dirichlet((worlds, tasks, letters), rng)
    return Trial(q_t, q_z, gibbs(beta * ((a - 1) * risk + a * g)), loss, n)


def coin_trial(betas: Tensor, n: int) -> Trial:
    """Fair coins z = ±1, w = ±1, l = -w z and q(w | d) proportional to exp(β w sum_i z_i), one world for each β [B].

    sigma = 1. Theorem 2 becomes an equality as β -> 0; at β = inf the learner minimises the empirical risk.
    """
    side = torch.tensor([-1.0, 1.0], dtype=betas.dtype)
    total = side[sequences(2, n)].sum(-1)
    q_w = gibbs(betas[:, None, None, None] * total[:, None] * side)
    shape = (len(betas), 1, 2)
    loss = -(side[:, None] * side).expand(*shape, 2)
    return Trial(torch.ones(shape[:2], dtype=betas.dtype), torch.full(shape, 0.5, dtype=betas.dtype), q_w, loss, n)
