"""Spinning lines (section 5.2): a zero-shot regression problem whose every quantity has a closed form.

A task draws inputs x_i ~ N(mu, sigma^2), a slope w = mean(x) + eps_w with eps_w ~ N(mu_w, sigma_w^2), and outputs
y_i = w x_i. There is no support set: what SIB may know of w at test time is the x_i alone.

Everything is batched over C configurations (readings of the objective x seeds): parameters and data carry a leading
dimension C, and all configurations train in one pass.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from sibcore.datasets.progress import steps
from sibcore.device import pick_device, threads
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.theory.bayes import kl_gaussian

T = TypeVar("T", Tensor, np.ndarray)
Weights = dict[str, Tensor]
Reading = Literal["sum", "mean", "sum_of_squares"]


@parameters
class SpinningLines:
    """The problem and the training protocol, with the paper's values as defaults."""

    n: Count = Field(32, description="inputs per task")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    mu: float = Field(0.0, description="mean of the inputs x_i")
    sigma: Positive = Field(1.0, description="standard deviation of the inputs x_i")
    mu_w: float = Field(1.0, description="mean of eps_w")
    sigma_w: Positive = Field(0.1, description="standard deviation of eps_w, and of q")
    eta: Positive = Field(1e-3, description="step size of the inner update, eq. (toy)")
    width: Count = Field(8, description="hidden size of xi, and of the BNN")
    tasks: Count = Field(240, description="training tasks, and as many test tasks")
    epochs: Count = Field(150, description="passes over the training tasks")
    batch: Count = Field(8, description="tasks per step")
    lr: Positive = Field(1e-3, description="learning rate of Adam")
    seeds: Count = Field(8, description="repetitions, trained together")
    seed: NonNegative = Field(0, description="first seed; the others follow it")

    @property
    def prior(self) -> tuple[float, float]:
        """Mean and standard deviation of p(w)."""
        return self.mu + self.mu_w, math.hypot(self.sigma / math.sqrt(self.n), self.sigma_w)

    @property
    def information(self) -> float:
        """I(w; x) in nats, which the paper writes I(w; d): the entropy of p(w) less that of p(w|x)."""
        return 0.5 * math.log1p(self.sigma**2 / (self.n * self.sigma_w**2))


@parameters
class SpinningLinesNotebook(SpinningLines):
    """The parameters of the notebook: every reading is trained in any case, and one is shown in Figure 3."""

    reduction: Reading = Field("sum", description="the reading of the likelihood shown in Figure 3")

    def experiment(self) -> SpinningLines:
        return SpinningLines(**{field.name: getattr(self, field.name) for field in dataclasses.fields(SpinningLines)})


def likelihood_weights(p: SpinningLines) -> dict[Reading, float]:
    """The readings of "-log p(d|w)": what each multiplies sum_i (y_i - w x_i)^2 / 2 with.

    sum             -log N(y_i; w x_i, 1) summed over i, as "implies that p(y|x,w) = N(wx, 1)" says
    mean            1/n of it, as eq. (lik) says
    sum_of_squares  "l_t is a mean squared error": the square without the 1/2 of a unit Gaussian, summed as in eq. (toy)
    """
    return {"sum": 1.0, "mean": 1.0 / p.n, "sum_of_squares": 2.0}


def sample_tasks(p: SpinningLines, stream: int) -> tuple[Tensor, Tensor]:
    """Inputs x [S, tasks, n] and slopes w [S, tasks]. Seed s draws its own, whatever the other seeds are.

    `stream` tells training (0) from test tasks (1). Drawn on the CPU, so that every device sees the same tasks.
    """
    xs, ws = [], []
    for g in _generators(p, stream):
        x = p.mu + p.sigma * torch.randn(p.tasks, p.n, generator=g, dtype=torch.float64)
        xs.append(x)
        ws.append(x.mean(-1) + p.mu_w + p.sigma_w * torch.randn(p.tasks, generator=g, dtype=torch.float64))
    return torch.stack(xs), torch.stack(ws)


def posterior_mean(p: SpinningLines, x: Tensor) -> Tensor:
    """Mean of p(w|x) = N(mean(x) + mu_w, sigma_w^2); x [..., n] -> [...]."""
    return x.mean(-1) + p.mu_w


def init_sib(p: SpinningLines) -> Weights:
    """lambda [S], psi [S, 2] = (mean, log standard deviation) of p_psi, and xi [S, number], its weights in a row."""
    zeros = torch.zeros(p.seeds, 2, dtype=torch.float64)
    return {"lambda": zeros[:, 0], "psi": zeros, "xi": _init_mlp(p, stream=2)}


def mlp(row: Tensor, x: Tensor) -> Tensor:
    """Linear, ReLU, Linear, ReLU, Linear on every number of x [C, ...], with each configuration's own row of weights.

    A row [C, width² + 4 width + 1] holds matrix and bias of each layer, one after the other.
    """
    width = math.isqrt(row.shape[-1] + 3) - 2
    sizes = [width, width, width * width, width, width, 1]
    w1, b1, w2, b2, w3, b3 = (part[..., None] for part in row.split(sizes, dim=-1))
    hidden = torch.relu(torch.addcmul(b1, w1, x.reshape(len(x), 1, -1)))
    hidden = torch.relu(torch.baddbmm(b2, w2.view(-1, width, width), hidden))
    return torch.baddbmm(b3, w3.mT, hidden).view_as(x)


def trajectory(weights: Weights, x: Tensor, K: int, eta: float) -> list[Tensor]:
    """theta^0 ... theta^K of eq. (toy), each [C, tasks], for inputs x [C, tasks, n].

    theta^{k+1} = theta^k - eta sum_i x_i xi(theta^k x_i): a plain sum over i and, unlike eq. (sib), no KL term.
    """
    thetas = [weights["lambda"][:, None].expand(x.shape[:2])]
    for _ in range(K):
        theta = thetas[-1]
        thetas.append(theta - eta * (x * mlp(weights["xi"], theta[..., None] * x)).sum(-1))
    return thetas


def measures(p: SpinningLines, weight: T, theta: T, psi: tuple[T, T], v: T, S: T, squared_error: T) -> dict[str, T]:
    """The four curves of Figure 3 (left) and the objective (avi), for each task; all of them tensors, or numpy arrays.

    A task has the posterior mean v, S = sum_i x_i^2 and the squared error (w - theta)^2, and psi is mean and standard
    deviation of p_psi. With q = N(theta, sigma_w^2), E_q (y_i - w' x_i)^2 = x_i^2 ((w - theta)^2 + sigma_w^2): no
    sampling is needed. The objective is without the likelihood's normalising constant; its `weight` is the reading,
    one of `likelihood_weights`.
    """
    information = kl_gaussian(theta, p.sigma_w, *psi)
    return {
        "mse": S / p.n * squared_error,
        "kl_posterior": kl_gaussian(theta, p.sigma_w, v, p.sigma_w),
        "kl_prior": kl_gaussian(*psi, *p.prior),
        "information": information,
        "objective": 0.5 * weight * S * (squared_error + p.sigma_w**2) + information,
    }


def sib_experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Algorithm 1 for every reading and seed at once; those of one seed share tasks, initial values and order.

    Arrays are test curves [R, epochs + 1, S] and, on the test tasks, theta^0 ... theta^{K+1} [R, K + 2, S, tasks]; R
    readings in the order of `likelihood_weights`. The trajectories go one step further than was trained, as the paper's
    middle panel does (k = 0..4 at K = 3).
    """
    readings = likelihood_weights(p)
    weight = _on_device(torch.tensor(list(readings.values())).repeat_interleave(p.seeds)[:, None])
    x, w, test_x, test_w = (_on_device(t, len(readings)) for s in (0, 1) for t in sample_tasks(p, stream=s))
    weights = {name: _on_device(value, len(readings)).requires_grad_() for name, value in init_sib(p).items()}

    def measured(theta: Tensor, x: Tensor, w: Tensor) -> dict[str, Tensor]:
        psi = weights["psi"][:, :1], weights["psi"][:, 1:].exp()
        tasks = posterior_mean(p, x), x.square().sum(-1), (w - theta).square()
        return {name: values.mean(-1) for name, values in measures(p, weight, theta, psi, *tasks).items()}

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return measured(trajectory(weights, x, p.K, p.eta)[-1], x, w)["objective"].sum()

    def curves() -> dict[str, Tensor]:
        parts = test_x.split(24, dim=1)  # small enough for the processor's cache
        theta = torch.cat([trajectory(weights, part, p.K, p.eta)[-1] for part in parts], dim=1)
        return measured(theta, test_x, test_w)

    by_epoch = _fit(p, weights.values(), (x, w), loss, curves, f"SIB n={p.n} K={p.K}")
    by_epoch["theta"] = torch.stack(trajectory(weights, test_x, p.K + 1, p.eta))
    arrays = _to_numpy({name: value.unflatten(1, (-1, p.seeds)).movedim(1, 0) for name, value in by_epoch.items()})
    metrics = {}
    for i, reading in enumerate(readings):
        last = _final({name: arrays[name][i] for name in arrays if name != "theta"})
        metrics |= {f"{reading}/{name}": value for name, value in last.items()}
    x, w = sample_tasks(p, stream=1)
    told = {"w": w, "posterior_mean": posterior_mean(p, x), "sum_of_x_squared": x.square().sum(-1)}
    return metrics, arrays | _to_numpy(told | {"psi": weights["psi"].unflatten(0, (-1, p.seeds))})


def bnn_experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The baseline: one Bayesian network for the pooled tasks (Bayes by backprop), with SIB's budget; summed loss.

    Arrays are the test error [epochs + 1, S] and the predicted y [S, 61] on a grid of x [S, 61].
    """
    x, w, test_x, test_w = (_on_device(t) for s in (0, 1) for t in sample_tasks(p, stream=s))
    # a Gaussian over the weights of a network x -> y, with means as in a plain network
    mean = _on_device(_init_mlp(p, stream=3)).requires_grad_()
    log_std = torch.full_like(mean, -3.0, requires_grad=True)
    eps = iter(_noise(p, p.epochs * math.ceil(p.tasks / p.batch), stream=4))

    def loss(x: Tensor, w: Tensor) -> Tensor:
        error = w[..., None] * x - mlp(mean + log_std.exp() * next(eps), x)
        kl = kl_gaussian(mean, log_std.exp(), 0.0, 1.0).sum()
        return 0.5 * error.square().sum(-1).mean(-1).sum() + kl / p.tasks  # all tasks share one KL to the prior N(0, 1)

    def predictive_mean(x: Tensor) -> Tensor:
        return torch.stack([mlp(mean + log_std.exp() * eps, x) for eps in _noise(p, 8, stream=5)]).mean(0)

    def curves() -> dict[str, Tensor]:
        return {"mse": (test_w[..., None] * test_x - predictive_mean(test_x)).square().mean((-1, -2))}

    arrays = _fit(p, (mean, log_std), (x, w), loss, curves, f"BNN n={p.n}")
    metrics = _final(_to_numpy(arrays))
    grid = _on_device(torch.linspace(p.mu - 3 * p.sigma, p.mu + 3 * p.sigma, 61).expand(p.seeds, 61))
    return metrics, _to_numpy(arrays | {"grid": grid, "line": predictive_mean(grid)})


def bnn_floor(p: SpinningLines) -> float:
    """The least mean squared error of any single curve y = f(x), as the BNN's: E[x^2 Var(w|x_i)].

    Knowing one x_i only, w has variance sigma_w^2 + sigma^2 (n - 1) / n^2 (the other inputs stay unknown).
    """
    return (p.sigma**2 + p.mu**2) * (p.sigma_w**2 + p.sigma**2 * (p.n - 1) / p.n**2)


def _fit(
    p: SpinningLines, weights: Iterable[Tensor], tasks: Sequence[Tensor], loss: Callable, curves: Callable, what: str
) -> dict[str, Tensor]:
    """Adam for `epochs` passes over `tasks` (x, w); what `curves()` finds before the first and after each.

    The loss sums over configurations, so each one's weights see their own gradient.
    """
    device = tasks[0].device
    optimizer = torch.optim.Adam(weights, lr=p.lr, fused=device.type != "mps")
    orders = _generators(p, stream=6)
    each = torch.arange(len(tasks[0]), device=device)[:, None]
    curves = torch.no_grad()(curves)
    history = [curves()]
    with threads(1):
        for _ in steps(p.epochs, what, unit="epoch"):
            order = torch.stack([torch.randperm(p.tasks, generator=g) for g in orders])
            order = order.repeat(len(each) // p.seeds, 1).to(device)
            for batch in zip(*(values[each, order].split(p.batch, dim=1) for values in tasks), strict=True):
                optimizer.zero_grad()
                loss(*batch).backward()
                optimizer.step()
            history.append(curves())
    return {name: torch.stack([epoch[name] for epoch in history]) for name in history[0]}


def _init_mlp(p: SpinningLines, stream: int) -> Tensor:
    """Rows of weights [S, number]: uniform within 1/sqrt(inputs), torch's usual, but from our own generators."""
    bound = torch.full((p.width**2 + 4 * p.width + 1,), 1 / math.sqrt(p.width))
    bound[: 2 * p.width] = 1  # the first layer has one input
    uniform = [torch.rand(len(bound), generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return (2 * torch.stack(uniform) - 1) * bound


def _noise(p: SpinningLines, draws: int, stream: int) -> Tensor:
    """Standard normal noise for the BNN's weights, [draws, S, number of weights]."""
    shape = (draws, p.width**2 + 4 * p.width + 1)
    drawn = [torch.randn(shape, generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return _on_device(torch.stack(drawn, 1))


def _generators(p: SpinningLines, stream: int) -> list[torch.Generator]:
    """One generator per seed; streams keep tasks, initial values, orders and noise apart from each other."""
    return [torch.Generator().manual_seed(1_000_003 * stream + s) for s in range(p.seed, p.seed + p.seeds)]


def _on_device(tensor: Tensor, readings: int = 1) -> Tensor:
    """[S, ...] -> [readings * S, ...] on the device, always a copy."""
    return tensor.repeat(readings, *[1] * (tensor.dim() - 1)).to(pick_device(), torch.float32)


def _final(curves: dict[str, np.ndarray]) -> dict[str, float]:
    """After the last epoch: the mean over seeds and the half-width of its 95 % interval (not for a single seed)."""
    last = pd.DataFrame({name: value[-1] for name, value in curves.items()})
    return pd.concat([last.mean(), (1.96 * last.sem()).add_suffix("_ci95").dropna()]).to_dict()


def _to_numpy(arrays: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: value.detach().to("cpu", torch.float32).numpy() for name, value in arrays.items()}
