"""Theorem 2 and its corollary on finite worlds: the generalisation gap, its bound, and every step in between.

A data set d = (z_1, ..., z_n) is one of the Z^n sequences over a finite alphabet, drawn iid from q(z | t).

The corollary has l = -log p(z | w, t). As printed, (popeb) >= n/(2 sigma²) gen(q)² + E L_t. Which right-hand side is
meant depends on eq. (lik). With the plain sum, -log p(d|w,t) = n L_t. With the printed 1/n it is L_t and a
log-normaliser that eq. (lik) calls a constant.

Shapes: B worlds, T tasks t, Z letters z, D data sets d, W weights w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Binomial
from torch.nn.functional import one_hot

from sibrepro.theory.bayes import Reduction
from sibrepro.theory.bottleneck import Inference, World, dirichlet, kl_discrete, mutual_information

MOST_DATASETS = 4096


@dataclass(frozen=True)
class Trial(Inference):
    """A learner, which sees a data set d ~ q(d | t) and answers with weights w ~ q(w | d, t), and its loss.

    Attributes:
        q_z: distribution of the letters, q(z | t), `[B, T, Z]`.
        letters: probability of each letter at each place of a data set, `[D, n, Z]`.
        loss: l_t(w, z), `[B, T, W, Z]`.
    """

    q_z: Tensor
    letters: Tensor
    loss: Tensor

    @property
    def unseen(self) -> Tensor:
        """Return q(d | t) q(w | t), as if w were tested on a data set it has not seen, `[B, T, D, W]`."""
        return self.q_d[..., None] * self.aggregated[..., None, :]

    @property
    def empirical_loss(self) -> Tensor:
        """Return L_t(w, d) = 1/n sum_i l_t(w, z_i), `[B, T, D, W]`."""
        return self.letters.mean(1) @ self.loss.mT


def sequences(q_z: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Enumerate all D = Z^n data sets of n letters.

    Args:
        q_z: distribution of the letters, `[B, T, Z]`.
        n: length of a data set.

    Returns:
        q(d | t) = prod_i q(z_i | t), `[B, T, D]`, and the one-hot letters of each data set, `[D, n, Z]`.

    Raises:
        ValueError: there are more than `MOST_DATASETS` data sets.
    """
    count = q_z.shape[-1]
    if count**n > MOST_DATASETS:
        raise ValueError(
            f"{count} letters and n = {n} make {count}^{n} = {count**n} data sets, and each is enumerated: "
            f"at most {MOST_DATASETS} are allowed, so choose a smaller alphabet or n"
        )
    rows = torch.cartesian_prod(*[torch.arange(count)] * n).reshape(-1, n)
    return q_z[..., rows].prod(-1), one_hot(rows, count).to(q_z.dtype)


def counts(q_z: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Enumerate the data sets of n coins for a learner that only counts heads.

    Data sets with the same count are one, so D = n + 1 and n may be large. The letters of such a data set are random:
    each place has the same probability of heads.

    Args and returns: as for `sequences`, with Z = 2.
    """
    heads = torch.arange(n + 1).to(q_z)
    q_d = Binomial(n, q_z[..., 1:]).log_prob(heads).exp()
    letters = torch.stack([1 - heads / n, heads / n], -1)
    return q_d, letters[:, None].expand(-1, n, -1)


def terms(trial: Trial) -> dict[str, Tensor]:
    """Return the quantities of Theorem 2 and its corollary, `[B]`.

    The repaired proof of the theorem is |gap| <= lemma <= jensen <= theorem.

    gap           gen(q) = E_q(t) [ E_q(w|t)q(d|t) L_t - E_q(w,d|t) L_t ]
    risk          E_q(w,d,t) L_t(w, d)
    information   I_q(w; d | t)
    sigma2        the smallest sigma² that holds for every task, for l_t(w, z) under q(w|t) q(z|t)
    lemma         E_t 1/n sum_i sqrt(2 sigma² I(w; z_i | t = t)), the lemma applied to each z_i
    jensen        sqrt(2 sigma²/n sum_i I(w; z_i | t))
    theorem       sqrt(2 sigma²/n I(w; d | t)), since the z_i are independent given t
    regulariser   n/(2 sigma²) gen(q)², at most I_q(w; d | t) by Theorem 2
    """
    n = trial.letters.shape[1]
    q_wz = trial.aggregated[..., :, None] * trial.q_z[..., None, :]
    sigma2 = subgaussian_variance(trial.loss.flatten(-2), q_wz.flatten(-2)).amax(-1)
    loss = trial.empirical_loss
    gap = trial.over_tasks(((trial.unseen - trial.q_dw) * loss).sum((-2, -1)))
    information = trial.over_tasks(mutual_information(trial.q_dw))
    each = single_information(trial)
    return {
        "gap": gap,
        "risk": trial.over_tasks((trial.q_dw * loss).sum((-2, -1))),
        "information": information,
        "sigma2": sigma2,
        "lemma": trial.over_tasks(_root(2 * sigma2[:, None, None] * each).mean(-1)),
        "jensen": _root(2 * sigma2 / n * trial.over_tasks(each.sum(-1))),
        "theorem": _root(2 * sigma2 / n * information),
        "regulariser": n * gap**2 / (2 * sigma2),
    }


def _root(values: Tensor) -> Tensor:
    """Return square roots of values that only rounding can make negative."""
    return values.clamp_min(0).sqrt()


def single_information(trial: Trial) -> Tensor:
    """Return I_q(w; z_i | t = t) for each task and each i, `[B, T, n]`."""
    return mutual_information(torch.einsum("btdw,diz->btizw", trial.q_dw, trial.letters))


def empirical_variance_proxy(trial: Trial) -> Tensor:
    """Return the smallest sigma² of L_t(w, d) under q(w|t) q(d|t), `[B]`.

    The paper's proof says that this is sigma²/n with the sigma of l_t.
    """
    return subgaussian_variance(trial.empirical_loss.flatten(-2), trial.unseen.flatten(-2)).amax(-1)


def subgaussian_variance(values: Tensor, probabilities: Tensor) -> Tensor:
    """Return the smallest sigma² with log E exp(λ(X - EX)) <= λ² sigma² / 2 for all λ.

    It is the supremum over λ of 2 log E exp(λ(X - EX)) / λ², whose limit at λ = 0 is the variance. A grid of λ of both
    signs over five decades is refined three times around its best point. If the grid misses the supremum, the result is
    too small, never too large.

    Args:
        values: values of a random variable X, `[..., m]`.
        probabilities: their probabilities, `[..., m]`.

    Returns:
        sigma², `[...]`.
    """
    centred = values - (probabilities * values).sum(-1, keepdim=True)
    variance = (probabilities * centred**2).sum(-1)
    scale = centred.abs().amax(-1).clamp_min(torch.finfo(values.dtype).tiny)
    unit = (centred / scale[..., None])[..., None, None, :]
    log_p = probabilities.log()[..., None, None, :]
    sign = values.new_tensor([[1.0], [-1.0]])
    centre = values.new_full((*variance.shape, 2, 1), math.log(10) / 2)
    reach = 2.5 * math.log(10)  # λ from 1e-2 to 1e3, in units of 1 / max |X - EX|
    for points in (61, 21, 21, 21):
        grid = centre + reach * torch.linspace(-1, 1, points, dtype=values.dtype, device=values.device)
        lam = sign * grid.exp()
        ratio = 2 * torch.logsumexp(lam[..., None] * unit + log_p, -1) / lam**2
        best, at = ratio.max(-1, keepdim=True)
        centre = grid.gather(-1, at)
        reach = 2 * reach / (points - 1)
    return torch.maximum(variance, best.amax((-2, -1)) * scale**2)


def random_trial(worlds: int, tasks: int, letters: int, n: int, weights: int, rng: np.random.Generator) -> Trial:
    """Draw learners of all kinds: w is independent of d, a function of d or in between; fitted to the loss or to noise.

    q(w | d, t) is proportional to exp(β [(a - 1) n L_t(w, d) + a g(w, d, t)]) with g Gaussian. Each world has its own β
    in [0.01, 100] and a in [0, 1]. Half of the worlds have 0/1 losses, the others Gaussian ones.

    Args:
        worlds, tasks, letters, weights: sizes B, T, Z and W.
        n: length of a data set.
        rng: source of the random numbers.
    """
    table = rng.standard_normal((worlds, tasks, weights, letters))
    table[..., 0, 0], table[..., -1, -1] = -1, 1  # so that no 0/1 loss is constant
    zero_one = np.arange(worlds)[:, None, None, None] % 2 == 0
    loss = torch.from_numpy(np.where(zero_one, table > 0, table).astype(float))
    beta = torch.from_numpy(10 ** rng.uniform(-2, 2, size=(worlds, 1, 1, 1)))
    a = torch.from_numpy(rng.uniform(size=(worlds, 1, 1, 1)))
    g = torch.from_numpy(rng.standard_normal((worlds, tasks, letters**n, weights)))
    q_t, q_z = dirichlet((worlds, tasks), rng), dirichlet((worlds, tasks, letters), rng)
    q_d, places = sequences(q_z, n)
    summed_loss = places.sum(1) @ loss.mT  # n L_t(w, d)
    q_w = torch.softmax(beta * ((a - 1) * summed_loss + a * g), -1)
    return Trial(q_t, q_d, q_w, q_z, places, loss)


def coin_trial(betas: Tensor, n: int) -> Trial:
    """Return learners of fair coins, for which Theorem 2 is tight in a limit.

    z = ±1, w = ±1, l = -w z and q(w | d) is proportional to exp(β w sum_i z_i), so sigma = 1. Theorem 2 becomes an
    equality as β -> 0. At β = inf the learner minimises the empirical risk.

    Args:
        betas: β of each world, `[B]`.
        n: number of coins in a data set.
    """
    side = betas.new_tensor([-1.0, 1.0])
    q_t = torch.ones_like(betas)[:, None]
    q_z = torch.full_like(side, 0.5).expand(len(betas), 1, 2)
    q_d, letters = counts(q_z, n)
    summed = letters.sum(1) @ side  # sum_i z_i, [D]
    q_w = torch.softmax(betas[:, None, None, None] * summed[:, None] * side, -1)
    loss = -(side[:, None] * side).expand(len(betas), 1, 2, 2)
    return Trial(q_t, q_d, q_w, q_z, letters, loss)


def random_likelihood_trial(
    worlds: int, tasks: int, letters: int, n: int, weights: int, rng: np.random.Generator
) -> tuple[Trial, World]:
    """Draw learners with l = -log p(z | w, t), and the same as worlds with p(d | w, t) = prod_i p(z_i | w, t).

    The arguments are those of `random_trial`.
    """
    p_z = dirichlet((worlds, tasks, weights, letters), rng)
    trial = replace(random_trial(worlds, tasks, letters, n, weights, rng), loss=-p_z.log())
    p_d, _ = sequences(p_z, n)
    return trial, World(trial.q_t, trial.q_d, trial.q_w, dirichlet((worlds, weights), rng), p_d)


def biased_coins(n: int, biases: Tensor, w: Tensor, reduction: Reduction) -> dict[str, float]:
    """Return `terms` and (popeb) for coins whose bias a Bayesian learner infers from n tosses.

    Args:
        n: number of tosses in a data set.
        biases: probability of heads of each task, `[T]`.
        w: grid of biases, on which the prior is uniform, `[W]`.
        reduction: "sum" for the Bayes posterior as q, "mean" for the one that the 1/n of eq. (lik) gives.
    """
    loss = -torch.stack([1 - w, w], -1).log().expand(1, len(biases), -1, -1)
    q_t = torch.full_like(biases, 1 / len(biases))[None]
    q_z = torch.stack([1 - biases, biases], -1)[None]
    q_d, letters = counts(q_z, n)
    minus_log_p = letters.mean(1) @ loss.mT * (n if reduction == "sum" else 1)
    coins = Trial(q_t, q_d, torch.softmax(-minus_log_p, -1), q_z, letters, loss)
    kl = kl_discrete(coins.q_w, torch.full_like(w, 1 / len(w)))
    popeb = coins.over_tasks((coins.q_dw * minus_log_p).sum((-2, -1)) + (q_d * kl).sum(-1))
    return {"popeb": popeb.item()} | {name: value.item() for name, value in terms(coins).items()}
