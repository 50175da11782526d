"""The statements that notebook 01 checks by exact computation, beside what its subject cells show.

Each function returns statements, and whether each is true here. All numbers are in float64.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal, kl_divergence
from torch.nn.functional import one_hot

from sibrepro.facts import Record
from sibrepro.studies.theory.worlds import ElboParams, gaussian_model
from sibrepro.theory import bayes
from sibrepro.theory import bottleneck as ib
from sibrepro.theory import generalisation as gen

Statements = dict[str, bool]

ROUNDING = -1e-7  # a bound may seem violated by this much: it is the root of an information that is zero up to rounding


def report(statements: Statements) -> str:
    """Return statements as text, a line each, that begins with "yes" or "NO"."""
    return "\n".join(f"{'yes' if holds else 'NO '}  {statement}" for statement, holds in statements.items())


def evidence(p: ElboParams) -> Statements:
    """Check that log p(D) is the ELBO plus the divergences from the true posteriors.

    The three terms come from three closed forms. On the line, q is a mixture of Gaussians, so no term has a closed form
    and all are integrated on a grid.
    """
    generator = torch.Generator().manual_seed(p.seed + 1)
    model = gaussian_model(p)
    posterior, total = model.posterior(), model.log_evidence().sum()
    gaussian = []
    for _ in range(200):
        mean = 3 * torch.randn(p.tasks, p.dim, generator=generator, dtype=torch.float64)
        q = MultivariateNormal(mean, bayes.random_covariances(p.tasks, p.dim, generator))
        gaussian.append((total - model.elbo(q).sum() - kl_divergence(q, posterior).sum()).abs())
    at_posterior = (model.elbo(posterior).sum() - total).abs()
    mixtures = _gaps_of_mixtures(p, generator, 50)
    return {
        "200 random Gaussians q with full covariances: |log p(D) − ELBO − KL| < 1e-10": _all(
            torch.stack(gaussian) < 1e-10
        ),
        "q = the true posteriors: the ELBO is log p(D), to 1e-10": _all(at_posterior < 1e-10),
        "50 random mixtures of Gaussians q: |log p(d) − ELBO − KL| < 1e-10": _all(mixtures < 1e-10),
    }


def gradient(p: ElboParams) -> Statements:
    """Check that eq. (sib) with the true dl/dy_hat is the gradient of the KL to the posterior.

    For a softmax classifier, with fixed draws of the noise, the gradient is that of autograd on the same objective. In
    the linear-Gaussian model everything is exact, by quadrature on one side and the closed-form KL on the other.
    """
    found = {}
    for reduction, words in (("sum", "plain sum"), ("mean", "1/n of eq. (lik)")):
        found[f"softmax classifier, {words}: eq. (sib) = autograd, to 1e-8"] = _softmax_gradient(p, reduction)
        found[f"linear-Gaussian model, {words}: eq. (sib) = gradient of the KL, to 1e-8"] = _gaussian_gradient(
            p, reduction
        )
    return found


def theorem_1(p: ElboParams, record: Record) -> Statements:
    """Check Theorem 1 in the random worlds of a run of `worlds`, and that its right-hand side is a constant."""
    found = record.metrics
    world = ib.random_world(1, *_sizes(p), np.random.default_rng(p.seed))
    other = ib.dirichlet((500, *_sizes(p)), np.random.default_rng(p.seed + 1))
    terms = ib.terms(replace(world, q_w=other))
    moves = {name: terms[name].max() - terms[name].min() for name in ("popeb", "ibt", "ib")}
    worlds = f"in all of {p.worlds:,} random worlds"
    return {
        f"(popeb) = I + H_qp + KL(q(w|t)‖p(w)) {worlds}, to 1e-10": found["decomposition_error"] < 1e-10,
        f"(popeb) ≥ I + H_q(d|w,t) {worlds}": found["bound_slack"] > 0,
        "equality in every aligned world, to 1e-10": found["tightness_error"] < 1e-10,
        f"I + H_q(d|w,t) = H_q(d|t) {worlds}, to 1e-10": found["constant_error"] < 1e-10,
        "with the best prior and likelihood, (popeb) = H_q(d|t) + I_q(w;t), to 1e-10": found["best_model_error"]
        < 1e-10,
        "500 other q(w|d,t) in one world move (popeb) and (ibt) by more than 0.05": _all(
            torch.stack([moves["popeb"], moves["ibt"]]) > 0.05
        ),
        "the same 500 move (ib) by less than 1e-12": _all(moves["ib"] < 1e-12),
    }


def theorem_2(record: Record) -> Statements:
    """Check every step of the repaired proof of Theorem 2 in the random worlds of a run of `worlds`."""
    found, values = record.metrics, record.arrays
    hoeffding = (values["hoeffding"] - values["theorem"]).min()
    return {
        "|gen| ≤ E 1/n Σᵢ √(2σ² I(w;zᵢ)) in every world": found["lemma_slack"] > ROUNDING,
        "      ≤ √(2σ²/n Σᵢ I(w;zᵢ|t))": found["jensen_slack"] > ROUNDING,
        "      ≤ √(2σ²/n I(w;d|t)), Theorem 2": found["chain_slack"] > ROUNDING,
        "      ≤ the same with Hoeffding's σ, half the range of the loss": bool(hoeffding > ROUNDING),
    }


def corollary(record: Record) -> Statements:
    """Check the corollary for finite data and for coins, and show densities that violate its printed form."""
    found, values = record.metrics, record.arrays
    coins = {}
    for reading, factor, words in (("sum", values["corollary/n"], "plain sum"), ("mean", 1, "1/n of eq. (lik)")):
        objective, risk, information, regulariser = (
            values[f"corollary/{reading}/{name}"] for name in ("objective", "risk", "information", "regulariser")
        )
        holds = (regulariser <= information) & (objective >= regulariser + factor * risk)
        coins[f"three coins, {words}: it holds at every n from 1 to 512"] = bool(holds.all())
    popeb, printed = densities()
    return {
        "finite z: (popeb) ≥ n/(2σ²) gen² + n E L in every world": found["corollary_with_n_slack"] > -1e-10,
        "finite z: the printed bound, with E L, holds too": found["corollary_printed_slack"] > -1e-10,
        **coins,
        f"densities: (popeb) = {popeb:.2f} is below the printed bound, {printed:.2f}": popeb < printed,
    }


def densities(n: int = 5, s: float = 0.01, tau: float = 0.005) -> tuple[float, float]:
    """Return (popeb) and the printed bound of the corollary for a world of densities in which the bound fails.

    q(z) = N(0, s²), p(z|w) = N(w, s²), and the learner ignores the data, q(w|d) = p(w) = N(0, tau²). So I = gen = 0,
    the KL is zero, (popeb) is n E L and the printed bound is E L. A density can exceed 1; its loss is then negative.
    """
    risk = 0.5 * math.log(2 * math.pi * s**2) + (s**2 + tau**2) / (2 * s**2)
    return n * risk, risk


def errata(p: ElboParams) -> Statements:
    """Check the errata (a) to (e) of the notebook."""
    rng = np.random.default_rng(p.seed)
    return _definitions(p, rng) | _inductive(p, rng) | _ignored_inputs(p, rng) | _family(p) | _step_for_psi(p)


def _definitions(p: ElboParams, rng: np.random.Generator) -> Statements:
    """Check (a): Theorem 1 with H_q(w|d,t), as its text defines it, and the aggregated posterior of its proof."""
    sure, uniform = torch.ones(1, 1, 1).double(), torch.full((1, 4), 0.25).double()
    world = ib.World(sure[0], sure, uniform[None, None], uniform, torch.ones(1, 1, 4, 1).double())
    literal = ib.terms(world)["information"] + torch.special.entr(world.q_w).sum()
    world = ib.random_world(100, *_sizes(p), rng)
    printed = torch.einsum("btd,btdw->btw", world.q_d**2, world.q_w).sum(-1)
    return {
        f"(a) with H_q(w|d,t), Theorem 1 would say 0 ≥ {literal.item():.3f}": _all(literal > 1),
        "(a) the aggregated posterior as printed sums to less than 0.999 in most tasks": bool(printed.median() < 0.999),
        "(a) as meant it sums to 1, to 1e-12": _all((world.aggregated.sum(-1) - 1).abs() < 1e-12),
    }


def _inductive(p: ElboParams, rng: np.random.Generator) -> Statements:
    """Check (b): a posterior that has not seen d has neither information about it nor a generalisation gap."""
    trial = gen.random_trial(200, p.tasks, p.letters, p.n, p.weights, rng)
    # w from another data set of the same task
    inductive = gen.terms(replace(trial, q_w=trial.aggregated[..., None, :].expand_as(trial.q_w)))
    zeros = torch.cat([inductive["gap"], inductive["information"]])
    seen = gen.terms(trial)["gap"].abs() > 1e-3
    return {
        "(b) an inductive q has gen = 0 and I(w;d|t) = 0, to 1e-12": _all(zeros.abs() < 1e-12),
        "(b) a q that uses d has |gen| > 0.001 in some of 200 worlds": bool(seen.any()),
    }


def _ignored_inputs(p: ElboParams, rng: np.random.Generator) -> Statements:
    """Check (c): inputs tell of w only if p(x|w) is not constant."""
    p_w = ib.dirichlet((500, p.weights), rng)
    p_x = ib.dirichlet((500, p.weights, p.letters), rng)
    constant = p_x[:, :1].expand_as(p_x)
    without, with_inputs = (ib.mutual_information(p_w[..., None] * table) for table in (constant, p_x))
    return {
        "(c) p(x|w) = p(x): I(w;x|dₗ) = 0, to 1e-12": _all(without.abs() < 1e-12),
        "(c) p(x|w) random: I(w;x|dₗ) > 0.01 in most worlds": bool(with_inputs.median() > 0.01),
    }


def _family(p: ElboParams) -> Statements:
    """Check (d): the best diagonal Gaussian keeps its distance from a posterior that is not diagonal."""
    posterior = gaussian_model(p).posterior()
    distance = kl_divergence(bayes.best_diagonal(posterior), posterior)
    precision = posterior.precision_matrix
    formula = 0.5 * (precision.diagonal(dim1=-2, dim2=-1).log().sum(-1) - torch.logdet(precision))
    return {
        "(d) KL of the best diagonal q = the closed form, to 1e-10": _all((distance - formula).abs() < 1e-10),
        "(d) and it is above 0.001 in every task, if w has several dimensions": p.dim == 1 or _all(distance > 1e-3),
    }


def _step_for_psi(p: ElboParams) -> Statements:
    """Check (e): Algorithm 1's gradient for psi misses the path of the loss through theta^K(psi)."""
    model, eta = gaussian_model(p), 0.1
    x, y = model.X[0, :, :1], model.y[0][:, None]
    zero, noise = torch.zeros(1, 1).double(), bayes.gauss_hermite(1, order=3)
    psi = torch.stack([zero, zero]).requires_grad_()  # only the prior's mean is followed

    def direction(theta: Tensor) -> Tensor:
        return bayes.kl_direction(theta, psi, x, lambda y_hat: y_hat - y, noise, "sum")

    theta_0 = torch.stack([zero + 1, zero])
    theta_1 = theta_0 - eta * direction(theta_0)
    objective = bayes.negative_elbo(theta_1, psi, x, lambda y_hat: 0.5 * (y_hat - y)[..., 0] ** 2, noise, "sum")
    kl = bayes.kl_gaussian(theta_1[0], theta_1[1].exp(), psi[0], 1.0).sum()
    exact, printed = (torch.autograd.grad(value, psi, retain_graph=True)[0][0].item() for value in (objective, kl))
    missing = eta * (direction(theta_1)[0] - (theta_1[0] - psi[0])).item()
    return {
        "(e) gradient of (avi) for ψ = Algorithm 1's + η times that of the loss": abs(exact - printed - missing)
        < 1e-10,
        "(e) and the two differ by more than 0.001": abs(exact - printed) > 1e-3,
    }


def _gaps_of_mixtures(p: ElboParams, generator: torch.Generator, count: int) -> Tensor:
    """Return |log p(d) - ELBO - KL| of tasks with one weight, for random mixtures of three Gaussians as q."""
    line = bayes.random_linear_tasks(p.tasks, p.n, 1, v=0.5, generator=generator)
    posterior, evidence = line.posterior(), line.log_evidence()
    grid = torch.linspace(-40, 40, 40_001, dtype=torch.float64)
    log_joint = line.log_joint(grid[:, None])
    log_posterior = Normal(posterior.mean, posterior.stddev).log_prob(grid)
    gaps = []
    for _ in range(count):
        weights, means, stds = torch.randn(3, 3, generator=generator, dtype=torch.float64)
        mixture = MixtureSameFamily(Categorical(logits=weights), Normal(1.5 * means, 0.3 + stds.abs()))
        log_q = mixture.log_prob(grid)
        elbo = torch.trapezoid(log_q.exp() * (log_joint - log_q), grid)
        kl = torch.trapezoid(log_q.exp() * (log_q - log_posterior), grid)
        gaps.append((evidence - elbo - kl).abs())
    return torch.stack(gaps)


def _softmax_gradient(p: ElboParams, reduction: bayes.Reduction, ways: int = 5, inputs: int = 12) -> bool:
    """Compare eq. (sib) with autograd for a softmax classifier and 64 draws of the noise."""
    generator = torch.Generator().manual_seed(p.seed + 2)
    features = torch.randn(inputs, p.dim, generator=generator, dtype=torch.float64)
    theta, psi = torch.randn(2, 2, ways, p.dim, generator=generator, dtype=torch.float64)
    theta[1], psi[1] = 0.3 * theta[1], 0.3 * psi[1]  # log standard deviations
    theta.requires_grad_()
    noise = torch.randn(64, ways, p.dim, generator=generator, dtype=torch.float64), torch.full((64,), 1 / 64).double()
    labels = one_hot(torch.arange(inputs) % ways, ways)
    with torch.no_grad():
        ours = bayes.kl_direction(theta, psi, features, lambda y_hat: y_hat.softmax(-1) - labels, noise, reduction)
    objective = bayes.negative_elbo(
        theta, psi, features, lambda y_hat: -(labels * y_hat.log_softmax(-1)).sum(-1), noise, reduction
    )
    (true,) = torch.autograd.grad(objective, theta)
    return _all((ours - true).abs() < 1e-8)


def _gaussian_gradient(p: ElboParams, reduction: bayes.Reduction) -> bool:
    """Compare eq. (sib) with the gradient of the closed-form KL in every task of a linear-Gaussian model.

    With the 1/n the target is no longer the posterior of the model but a tempered one.
    """
    generator = torch.Generator().manual_seed(p.seed + 3)
    prior_std, mean, log_std = torch.randn(3, p.dim, generator=generator, dtype=torch.float64)
    prior_std = 0.5 + prior_std.abs()
    model = replace(gaussian_model(p), S=torch.diag(prior_std**2))
    posterior = (model.tempered() if reduction == "mean" else model).posterior()
    theta = torch.stack([mean, 0.3 * log_std])[:, None].requires_grad_()
    psi = torch.stack([model.m, prior_std.log()])[:, None]
    noise = bayes.gauss_hermite(p.dim, order=3)
    q = MultivariateNormal(theta[0, 0], torch.diag(torch.exp(2 * theta[1, 0])))
    agree = True
    for t in range(p.tasks):
        y = model.y[t][:, None]
        with torch.no_grad():
            ours = bayes.kl_direction(
                theta, psi, model.X[t], lambda y_hat, y=y: (y_hat - y) / model.v, noise, reduction
            )
        kl = kl_divergence(q, MultivariateNormal(posterior.mean[t], posterior.covariance_matrix[t]))
        (true,) = torch.autograd.grad(kl, theta, retain_graph=True)
        agree &= _all((ours - true).abs() < 1e-8)
    return agree


def _sizes(p: ElboParams) -> tuple[int, int, int]:
    """Return the numbers of tasks, of data sets and of weights in a finite world."""
    return p.tasks, p.letters**p.n, p.weights


def _all(holds: Tensor) -> bool:
    """Return whether all of a tensor's values are true."""
    return bool(holds.all())
