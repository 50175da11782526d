"""The experiment of notebook 01: the paper's theorems, checked on random finite worlds.

A world is a set of small tables of probabilities, so both sides of a theorem are exact sums (see
`sibrepro.theory.bottleneck` and `sibrepro.theory.generalisation`). A run draws many random worlds and computes the
terms of each theorem in all of them. Its metrics say how large the errors of identities are, and how close any world
comes to violating an inequality. It also computes the curves of the notebook's figures.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor
from torch.distributions import MultivariateNormal

from sibrepro.facts import Experiment
from sibrepro.params import Count, NonNegative, parameters
from sibrepro.theory import bayes
from sibrepro.theory import bottleneck as ib
from sibrepro.theory import generalisation as gen

CHUNK = 100_000  # table cells to compute at a time: sigma needs a few kilobytes for each
TINY = 1e-12  # information below this is rounding error, and a ratio to it would be meaningless

# The metrics of a run: name, formula over the arrays, and how it is summarised over the worlds.
# An "error" should be zero, and a "slack" should be at least zero. `ratio` is |gap| / bound.
SUMMARIES = [
    ("decomposition_error", "abs(objective - ibt - prior_gap)", np.max),
    ("bound_slack", "objective - ib", np.min),
    ("constant_error", "abs(ib - data_entropy)", np.max),
    ("tightness_error", "abs(aligned_objective - aligned_ib)", np.max),
    ("best_model_error", "abs(best_objective - data_entropy - task_information)", np.max),
    ("lemma_slack", "lemma - abs(gap)", np.min),
    ("jensen_slack", "jensen - lemma", np.min),
    ("chain_slack", "theorem - jensen", np.min),
    ("median_ratio", "ratio", np.median),
    ("largest_ratio", "ratio", np.max),
    ("proof_step_fails", "proof_ratio > 1 + 1e-9", np.mean),
    ("proof_ratio_median", "proof_ratio", np.median),
    ("corollary_printed_slack", "nll_objective - nll_printed", np.min),
    ("corollary_with_n_slack", "nll_objective - nll_with_n", np.min),
]

AtLeastTwo = Annotated[int, Field(ge=2)]


@parameters
class ElboParams:
    """The number of random worlds and their sizes. The defaults are those of the quick profile."""

    worlds: Count = Field(2000, description="random finite worlds for each theorem")
    tasks: Count = Field(3, description="tasks t, in the finite and in the Gaussian worlds")
    n: Count = Field(3, description="examples in a data set d")
    letters: AtLeastTwo = Field(3, description="size of the alphabet of z: d is one of letters^n sequences")
    weights: AtLeastTwo = Field(4, description="number of values of w in the finite worlds")
    dim: Count = Field(3, description="dimension of w in the Gaussian model")
    seed: NonNegative = Field(0, description="of all random numbers")


def experiment(p: ElboParams) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compute a run.

    Returns:
        The metrics (see `SUMMARIES`) and the arrays. Arrays with plain names have one value for each random world. They
        are explained in `_theorem_1`, `_theorem_2` and `_corollary`. The others are the curves of figures:

        evidence, elbo/...   log p(D), and the ELBO at some q, in the Gaussian model
        path/...             terms of Theorem 1 as the posterior sharpens
        coin/...             |gen| / bound for fair coins, as the learner sharpens
        corollary/...        terms of the corollary for biased coins, as n grows
    """
    rng = np.random.default_rng(p.seed)
    values = _random_worlds(p, rng)
    curves = _elbo_examples(p) | _posterior_paths(p, rng) | _coin_family() | _coins_over_n()
    return _summary(values), values | {name: np.asarray(curve) for name, curve in curves.items()}


def gaussian_model(p: ElboParams) -> bayes.LinearGaussianTasks:
    """Return the conjugate multi-task model on which the notebook checks the ELBO and eq. (sib)."""
    return bayes.random_linear_tasks(p.tasks, p.n, p.dim, v=0.5, generator=torch.Generator().manual_seed(p.seed))


def _elbo_examples(p: ElboParams) -> dict[str, Tensor]:
    """Return log p(D), and the ELBO at some q that a reader would try."""
    model = gaussian_model(p)
    posterior, prior = model.posterior(), model.prior.expand((p.tasks,))
    mean, covariance = posterior.mean, posterior.covariance_matrix
    half_way = MultivariateNormal((mean + prior.mean) / 2, (covariance + prior.covariance_matrix) / 2)
    return {
        "evidence": model.log_evidence().sum(),
        "elbo/true posterior": model.elbo(posterior).sum(),
        "elbo/best diagonal": model.elbo(bayes.best_diagonal(posterior)).sum(),
        "elbo/narrow (MAP)": model.elbo(MultivariateNormal(mean, 0.05 * covariance)).sum(),
        "elbo/half-way to the prior": model.elbo(half_way).sum(),
        "elbo/prior": model.elbo(prior).sum(),
    }


def _posterior_paths(p: ElboParams, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the terms of Theorem 1 along q(w|d,t) ∝ p(w) p(d|w,t)^β, from the prior towards maximum likelihood.

    One path is in an aligned world, where the bound is tight, and one in a random world.
    """
    shape = (1, p.tasks, p.letters**p.n, p.weights)
    betas = torch.from_numpy(np.geomspace(0.03, 30, 61))
    curves = {"path/beta": betas}
    for kind, world in (("aligned", ib.aligned_world(*shape, rng)), ("random", ib.random_world(*shape, rng))):
        terms = ib.terms(ib.with_tempered_posterior(world, betas))
        for name in ("information", "popeb", "ibt", "ib"):
            curves[f"path/{kind}/{name}"] = terms[name]
    return curves


def _coin_family() -> dict[str, Tensor]:
    """Return |gen| / bound for fair coins and several n.

    β goes from a learner that nearly ignores the data to an empirical risk minimiser.
    """
    betas = torch.from_numpy(np.geomspace(0.01, 100, 81))
    curves = {"coin/beta": betas}
    for n in (1, 2, 4, 10):
        terms = gen.terms(gen.coin_trial(betas, n))
        curves[f"coin/{n}"] = terms["gap"].abs() / terms["theorem"]
    return curves


def _coins_over_n() -> dict[str, np.ndarray]:
    """Return the terms of the corollary for three biased coins, for n = 1, 2, 4, ..., 512.

    "sum" and "mean" are the two readings of eq. (lik), without and with its printed 1/n.
    """
    biases, w = torch.tensor([0.3, 0.5, 0.8]).double(), torch.linspace(0.02, 0.98, 49).double()
    sizes = 2 ** np.arange(10)
    curves = {"corollary/n": sizes}
    for reduction in ("sum", "mean"):
        terms = pd.DataFrame([gen.biased_coins(n, biases, w, reduction) for n in sizes.tolist()])
        terms = terms.rename(columns={"popeb": "objective", "gap": "gen"})
        for name in ("objective", "gen", "information", "risk", "regulariser"):
            curves[f"corollary/{reduction}/{name}"] = terms[name]
    return curves


def _random_worlds(p: ElboParams, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the terms of the theorems in all random worlds, in chunks that fit in memory."""
    datasets = gen.sequences(torch.ones(p.letters), p.n)[0].numel()  # raises an error first if there are too many
    chunk = max(1, CHUNK // (p.tasks * datasets * p.weights))
    chunks = []
    for start in range(0, p.worlds, chunk):
        size = min(chunk, p.worlds - start)
        chunks.append(_theorem_1(p, size, rng) | _theorem_2(p, size, rng) | _corollary(p, size, rng))
    return {name: torch.cat([part[name] for part in chunks]).numpy() for name in chunks[0]}


def _theorem_1(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the terms of Theorem 1 in random worlds and in aligned ones, `[B]`.

    The names are those of `sibrepro.theory.bottleneck.terms`, except for these:

    objective           the objective (popeb), the left side of the theorem
    aligned_objective   the same in aligned worlds, where the theorem is an equality
    aligned_ib          the right side in aligned worlds
    best_objective      the objective with the best p(w) and p(d | w, t) for the given q
    """
    shape = (worlds, p.tasks, p.letters**p.n, p.weights)
    world = ib.random_world(*shape, rng)
    aligned = ib.terms(ib.aligned_world(*shape, rng))
    terms = ib.terms(world)
    return {
        "objective": terms["popeb"],
        **{name: terms[name] for name in ("information", "ibt", "prior_gap", "ib", "data_entropy", "task_information")},
        "aligned_objective": aligned["popeb"],
        "aligned_ib": aligned["ib"],
        "best_objective": ib.terms(ib.with_optimal_model(world))["popeb"],
    }


def _theorem_2(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the terms of Theorem 2 for random learners, `[B]`.

    The names are those of `sibrepro.theory.generalisation.terms`, except for these:

    hoeffding     the bound with the sigma² of Hoeffding's lemma
    determinism   0 if w ignores d, 1 if w is a function of d
    proof_ratio   sigma² of L_t(w, d) divided by sigma²/n, which the paper's proof says is at most 1
    """
    trial = gen.random_trial(worlds, p.tasks, p.letters, p.n, p.weights, rng)
    terms = gen.terms(trial)
    low, high = trial.loss.flatten(-2).aminmax(dim=-1)
    hoeffding = ((high - low) / 2).square().amax(-1)  # a cruder sigma², which holds for any bounded loss
    weight_entropy = trial.over_tasks(torch.special.entr(trial.aggregated).sum(-1))
    return {
        **{name: terms[name] for name in ("gap", "lemma", "jensen", "theorem")},
        "hoeffding": terms["theorem"] * (hoeffding / terms["sigma2"]).sqrt(),
        "determinism": terms["information"] / weight_entropy.clamp_min(TINY),
        "proof_ratio": gen.empirical_variance_proxy(trial) / (terms["sigma2"] / p.n),
    }


def _corollary(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the two sides of the corollary for learners with random likelihoods, `[B]`.

    nll_objective   the objective (popeb), the left side
    nll_printed     the right side as printed
    nll_with_n      the right side with n times the risk, for the reading of eq. (lik) as a plain sum
    """
    trial, world = gen.random_likelihood_trial(worlds, p.tasks, p.letters, p.n, p.weights, rng)
    terms = gen.terms(trial)
    return {
        "nll_objective": ib.terms(world)["popeb"],
        "nll_printed": terms["regulariser"] + terms["risk"],
        "nll_with_n": terms["regulariser"] + p.n * terms["risk"],
    }


def _summary(values: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the metrics of a run from the arrays of its random worlds."""
    found = pd.DataFrame(values)
    found["ratio"] = found["gap"].abs() / found["theorem"].clip(lower=TINY)
    metrics = {}
    for name, formula, summarise in SUMMARIES:
        metrics[name] = float(summarise(found.eval(formula).to_numpy()))
    return metrics


THEORY = Experiment(
    "elbo_and_information_bottleneck",
    ElboParams,
    experiment,
    oldest="worlds tasks n letters weights dim seed".split(),
    tolerance={"*": 1e-6},  # sums in double precision are exact up to rounding
)
