"""The study of random finite worlds behind the notebook on the ELBO and the information bottleneck."""

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

CHUNK = 100_000  # table cells at a time: sigma needs a few kilobytes for each
TINY = 1e-12  # below it a ratio of information would be one of rounding errors

AtLeastTwo = Annotated[int, Field(ge=2)]


@parameters
class ElboParams:
    """How many worlds, and of what size. The defaults are those of the quick profile."""

    worlds: Count = Field(2000, description="random finite worlds for each theorem")
    tasks: Count = Field(3, description="tasks t, in the finite and in the Gaussian worlds")
    n: Count = Field(3, description="examples in a data set d")
    letters: AtLeastTwo = Field(3, description="size of the alphabet of z: d is one of letters^n sequences")
    weights: AtLeastTwo = Field(4, description="number of values of w in the finite worlds")
    dim: Count = Field(3, description="dimension of w in the Gaussian model")
    seed: NonNegative = Field(0, description="of all random numbers")


def study(p: ElboParams) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The theorems on random worlds (one value per world in each array), and the curves of the notebook's figures."""
    rng = np.random.default_rng(p.seed)
    values = _random_worlds(p, rng)
    curves = _elbo_examples(p) | _posterior_paths(p, rng) | _coin_family() | _coins_over_n()
    return _summary(values), values | {name: np.asarray(curve) for name, curve in curves.items()}


def gaussian_model(p: ElboParams) -> bayes.LinearGaussianTasks:
    """The conjugate multi-task model on which the notebook checks the ELBO and eq. (sib)."""
    return bayes.random_linear_tasks(p.tasks, p.n, p.dim, v=0.5, generator=torch.Generator().manual_seed(p.seed))


def _elbo_examples(p: ElboParams) -> dict[str, Tensor]:
    """log p(D), and the ELBO at a few q that a reader would try."""
    model = gaussian_model(p)
    posterior, prior = model.posterior(), model.prior.expand((p.tasks,))
    (mean, covariance), (m, S) = ((q.mean, q.covariance_matrix) for q in (posterior, prior))
    examples = {
        "true posterior": posterior,
        "best diagonal": bayes.best_diagonal(posterior),
        "narrow (MAP)": MultivariateNormal(mean, 0.05 * covariance),
        "half-way to the prior": MultivariateNormal((mean + m) / 2, (covariance + S) / 2),
        "prior": prior,
    }
    elbos = {f"elbo/{name}": model.elbo(q).sum() for name, q in examples.items()}
    return {"evidence": model.log_evidence().sum(), **elbos}


def _posterior_paths(p: ElboParams, rng: np.random.Generator) -> dict[str, Tensor]:
    """The terms of Theorem 1 along q(w|d,t) ∝ p(w) p(d|w,t)^β, in an aligned and in a random world."""
    shape = (1, p.tasks, p.letters**p.n, p.weights)
    curves = {"path/beta": torch.from_numpy(np.geomspace(0.03, 30, 61))}
    for kind, world in (("aligned", ib.aligned_world(*shape, rng)), ("random", ib.random_world(*shape, rng))):
        terms = ib.terms(ib.with_tempered_posterior(world, curves["path/beta"]))
        curves |= {f"path/{kind}/{name}": terms[name] for name in ("information", "popeb", "ibt", "ib")}
    return curves


def _coin_family() -> dict[str, Tensor]:
    """|gen| / bound for fair coins, from a nearly deaf learner to an empirical risk minimiser."""
    betas = torch.from_numpy(np.geomspace(0.01, 100, 81))
    terms = {f"coin/{n}": gen.terms(gen.coin_trial(betas, n)) for n in (1, 2, 4, 10)}
    return {"coin/beta": betas} | {name: found["gap"].abs() / found["theorem"] for name, found in terms.items()}


def _coins_over_n() -> dict[str, np.ndarray]:
    """The terms of the corollary for three biased coins, as n grows, under both readings of eq. (lik)."""
    biases, w = torch.tensor([0.3, 0.5, 0.8]).double(), torch.linspace(0.02, 0.98, 49).double()
    sizes = [2**i for i in range(10)]
    curves = {"corollary/n": np.array(sizes)}
    for reduction in ("sum", "mean"):
        terms = pd.DataFrame([gen.biased_coins(n, biases, w, reduction) for n in sizes])
        names = {"popeb": "objective", "gap": "gen"} | {n: n for n in ("information", "risk", "regulariser")}
        curves |= {f"corollary/{reduction}/{name}": terms[term] for term, name in names.items()}
    return curves


def _random_worlds(p: ElboParams, rng: np.random.Generator) -> dict[str, np.ndarray]:
    datasets = gen.sequences(torch.ones(p.letters), p.n)[0].numel()  # first of all: it refuses too many
    chunk = max(1, CHUNK // (p.tasks * datasets * p.weights))
    sizes = [min(chunk, p.worlds - start) for start in range(0, p.worlds, chunk)]
    chunks = [_theorem_1(p, size, rng) | _theorem_2(p, size, rng) | _corollary(p, size, rng) for size in sizes]
    return {name: torch.cat([chunk[name] for chunk in chunks]).numpy() for name in chunks[0]}


def _theorem_1(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    shape = (worlds, p.tasks, p.letters**p.n, p.weights)
    world, aligned = ib.random_world(*shape, rng), ib.terms(ib.aligned_world(*shape, rng))
    terms = ib.terms(world)
    return {
        "objective": terms["popeb"],
        **{name: terms[name] for name in ("information", "ibt", "prior_gap", "ib", "data_entropy", "task_information")},
        "aligned_objective": aligned["popeb"],
        "aligned_ib": aligned["ib"],
        "best_objective": ib.terms(ib.with_optimal_model(world))["popeb"],
    }


def _theorem_2(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    trial = gen.random_trial(worlds, p.tasks, p.letters, p.n, p.weights, rng)
    terms = gen.terms(trial)
    low, high = trial.loss.flatten(-2).aminmax(dim=-1)
    hoeffding = ((high - low) / 2).square().amax(-1)  # the cruder sigma² of any bounded loss
    weight_entropy = trial.over_tasks(torch.special.entr(trial.aggregated).sum(-1))
    return {name: terms[name] for name in ("gap", "lemma", "jensen", "theorem")} | {
        "hoeffding": terms["theorem"] * (hoeffding / terms["sigma2"]).sqrt(),
        # 0: w ignores d; 1: w is a function of d
        "determinism": terms["information"] / weight_entropy.clamp_min(TINY),
        # the paper's proof says that this is at most 1
        "proof_ratio": gen.empirical_variance_proxy(trial) / (terms["sigma2"] / p.n),
    }


def _corollary(p: ElboParams, worlds: int, rng: np.random.Generator) -> dict[str, Tensor]:
    trial, world = gen.random_likelihood_trial(worlds, p.tasks, p.letters, p.n, p.weights, rng)
    terms = gen.terms(trial)
    return {
        "nll_objective": ib.terms(world)["popeb"],
        "nll_printed": terms["regulariser"] + terms["risk"],
        "nll_with_n": terms["regulariser"] + p.n * terms["risk"],
    }


def _summary(v: dict[str, np.ndarray]) -> dict[str, float]:
    """Errors of identities (to be zero) and smallest slacks of inequalities (to be no less than zero)."""
    gap = np.abs(v["gap"])
    ratio = gap / np.maximum(v["theorem"], TINY)
    numbers = {
        "decomposition_error": np.abs(v["objective"] - v["ibt"] - v["prior_gap"]).max(),
        "bound_slack": (v["objective"] - v["ib"]).min(),
        "constant_error": np.abs(v["ib"] - v["data_entropy"]).max(),
        "tightness_error": np.abs(v["aligned_objective"] - v["aligned_ib"]).max(),
        "best_model_error": np.abs(v["best_objective"] - v["data_entropy"] - v["task_information"]).max(),
        "lemma_slack": (v["lemma"] - gap).min(),
        "jensen_slack": (v["jensen"] - v["lemma"]).min(),
        "chain_slack": (v["theorem"] - v["jensen"]).min(),
        "median_ratio": np.median(ratio),
        "largest_ratio": ratio.max(),
        "proof_step_fails": (v["proof_ratio"] > 1 + 1e-9).mean(),
        "proof_ratio_median": np.median(v["proof_ratio"]),
        "corollary_printed_slack": (v["nll_objective"] - v["nll_printed"]).min(),
        "corollary_with_n_slack": (v["nll_objective"] - v["nll_with_n"]).min(),
    }
    return {name: float(number) for name, number in numbers.items()}


OLDEST = "worlds tasks n letters weights dim seed".split()
# exact sums in double precision: there is little that may move
THEORY = Experiment("elbo_and_information_bottleneck", ElboParams, study, oldest=OLDEST, tolerance={"*": 1e-6})
