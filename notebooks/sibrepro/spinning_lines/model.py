"""Spinning lines (section 5.2): a zero-shot regression problem whose every quantity has a closed form.

A task draws inputs x_i ~ N(mu, sigma^2), a slope w = mean(x) + eps_w with eps_w ~ N(mu_w, sigma_w^2), and outputs
y_i = w x_i. There is no support set: what SIB may know of w at test time is the x_i alone.

Everything is batched over C configurations (readings of the objective x seeds): parameters and data carry a leading
dimension C, and all configurations train in one pass.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sibcore.device import pick_device, threads
from sibcore.progress import steps
from sibrepro.params import Count, NonNegative, Positive, parameters
from sibrepro.theory.bayes import kl_gaussian

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
    """lambda [S], psi [S, 2] = (mean, log standard deviation) of p_psi, and the layers of xi."""
    zeros = torch.zeros(p.seeds, 2, dtype=torch.float64)
    return {"lambda": zeros[:, 0], "psi": zeros, **_layers(_init_mlp(p, stream=2), p.width)}


def xi(weights: Weights, y: Tensor) -> Tensor:
    """The synthetic gradient network, a three-layer MLP applied to every prediction; y [C, ...] -> [C, ...]."""
    return _mlp(weights, y.reshape(len(y), 1, -1)).view_as(y)


def trajectory(weights: Weights, x: Tensor, K: int, eta: float) -> list[Tensor]:
    """theta^0 ... theta^K of eq. (toy), each [C, tasks], for inputs x [C, tasks, n].

    theta^{k+1} = theta^k - eta sum_i x_i xi(theta^k x_i): a plain sum over i and, unlike eq. (sib), no KL term.
    """
    thetas = [weights["lambda"][:, None].expand(x.shape[:2])]
    for _ in range(K):
        theta = thetas[-1]
        thetas.append(theta - eta * (x * xi(weights, theta[..., None] * x)).sum(-1))
    return thetas


def negative_elbo(p: SpinningLines, weight: Tensor, theta: Tensor, psi: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """The objective (avi) of each task, [C, tasks], without the likelihood's normalising constant.

    With q = N(theta, sigma_w^2), E_q (y_i - w' x_i)^2 = x_i^2 ((w - theta)^2 + sigma_w^2): no sampling is needed.
    `weight` [C, 1] is the reading, one of `likelihood_weights`.
    """
    squares = x.square().sum(-1) * ((w - theta).square() + p.sigma_w**2)
    return 0.5 * weight * squares + kl_gaussian(theta, p.sigma_w, psi[:, :1], psi[:, 1:].exp())


def evaluate(p: SpinningLines, weight: Tensor, theta: Tensor, psi: Tensor, x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """The four curves of Figure 3 (left) and the objective, each [C], averaged over the tasks."""
    mean, std = psi[:, 0], psi[:, 1].exp()
    return {
        "mse": ((w - theta).square() * x.square().mean(-1)).mean(-1),
        "kl_posterior": kl_gaussian(theta, p.sigma_w, posterior_mean(p, x), p.sigma_w).mean(-1),
        "kl_prior": kl_gaussian(mean, std, *p.prior),
        "information": kl_gaussian(theta, p.sigma_w, mean[:, None], std[:, None]).mean(-1),
        "objective": negative_elbo(p, weight, theta, psi, x, w).mean(-1),
    }


def train_sib(p: SpinningLines) -> tuple[Weights, dict[str, Tensor]]:
    """Algorithm 1 for every reading and seed at once: weights [C, ...] and test curves [epochs + 1, C].

    The readings of one seed share tasks, initial values and order; C runs over seeds within readings.
    """
    readings = likelihood_weights(p)
    weight = _on_device(torch.tensor(list(readings.values()), dtype=torch.float64).repeat_interleave(p.seeds)[:, None])
    x, w, test_x, test_w = (_each(t, len(readings)) for s in (0, 1) for t in sample_tasks(p, stream=s))
    weights = {name: _each(value, len(readings)).requires_grad_() for name, value in init_sib(p).items()}

    def loss(x: Tensor, w: Tensor) -> Tensor:
        theta = trajectory(weights, x, p.K, p.eta)[-1]
        return negative_elbo(p, weight, theta, weights["psi"], x, w).mean(-1).sum()

    def curves() -> dict[str, Tensor]:
        parts = test_x.split(24, dim=1)  # small enough for the processor's cache
        theta = torch.cat([trajectory(weights, part, p.K, p.eta)[-1] for part in parts], dim=1)
        return evaluate(p, weight, theta, weights["psi"], test_x, test_w)

    return weights, _fit(p, weights, x, w, loss, curves, f"SIB n={p.n} K={p.K}")


def sib_experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """One run: test curves [R, epochs + 1, S] and, on the test tasks, theta^0 ... theta^{K+1} [R, K + 2, S, tasks].

    R readings in the order of `likelihood_weights`. The trajectories go one step further than was trained, as the
    paper's middle panel does (k = 0..4 at K = 3).
    """
    weights, curves = train_sib(p)
    readings = list(likelihood_weights(p))
    x, w = sample_tasks(p, stream=1)
    with torch.no_grad():
        theta = torch.stack(trajectory(weights, _each(x, len(readings)), p.K + 1, p.eta))
    by_reading = {name: value.unflatten(1, (-1, p.seeds)).movedim(1, 0) for name, value in curves.items()}
    arrays = by_reading | {
        "theta": theta.unflatten(1, (-1, p.seeds)).movedim(1, 0),
        "psi": weights["psi"].unflatten(0, (-1, p.seeds)),
        "w": w,
        "posterior_mean": posterior_mean(p, x),
        "sum_of_x_squared": x.square().sum(-1),
    }
    metrics = {}
    for i, reading in enumerate(readings):
        metrics |= {f"{reading}/{name}": v for name, v in _final({k: c[i] for k, c in by_reading.items()}).items()}
    return metrics, _to_numpy(arrays)


def init_bnn(p: SpinningLines) -> Weights:
    """A Gaussian over the weights of a network x -> y: means as in a plain network, and log standard deviations."""
    mean = _init_mlp(p, stream=3)
    return {"mean": mean, "log_std": torch.full_like(mean, -3.0)}


def bnn_predict(p: SpinningLines, weights: Weights, x: Tensor, eps: Tensor) -> Tensor:
    """y [S, ...] under one draw of the weights; eps [S, number of weights] is standard normal."""
    drawn = _layers(weights["mean"] + weights["log_std"].exp() * eps, p.width)
    return _mlp(drawn, x.reshape(len(x), 1, -1)).view_as(x)


def bnn_mean(p: SpinningLines, weights: Weights, x: Tensor, draws: int = 8) -> Tensor:
    """The posterior predictive mean, over the same `draws` of the weights at every call."""
    return torch.stack([bnn_predict(p, weights, x, eps) for eps in _noise(p, draws, stream=5)]).mean(0)


def train_bnn(p: SpinningLines) -> tuple[Weights, dict[str, Tensor]]:
    """The baseline: one Bayesian network for the pooled tasks (Bayes by backprop), with SIB's budget; summed loss."""
    x, w, test_x, test_w = (_on_device(t) for s in (0, 1) for t in sample_tasks(p, stream=s))
    weights = {name: _on_device(value).requires_grad_() for name, value in init_bnn(p).items()}
    eps = iter(_noise(p, p.epochs * math.ceil(p.tasks / p.batch), stream=4))

    def loss(x: Tensor, w: Tensor) -> Tensor:
        error = w[..., None] * x - bnn_predict(p, weights, x, next(eps))
        kl = kl_gaussian(weights["mean"], weights["log_std"].exp(), 0.0, 1.0).sum()
        return 0.5 * error.square().sum(-1).mean(-1).sum() + kl / p.tasks  # all tasks share one KL to the prior N(0, 1)

    def curves() -> dict[str, Tensor]:
        return {"mse": (test_w[..., None] * test_x - bnn_mean(p, weights, test_x)).square().mean((-1, -2))}

    return weights, _fit(p, weights, x, w, loss, curves, f"BNN n={p.n}")


def bnn_experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """One run: the test error [epochs + 1, S] and the predicted y [S, 61] on a grid of x [S, 61]."""
    weights, curves = train_bnn(p)
    grid = _on_device(torch.linspace(p.mu - 3 * p.sigma, p.mu + 3 * p.sigma, 61).expand(p.seeds, 61))
    with torch.no_grad():
        line = bnn_mean(p, weights, grid)
    return _final(curves), _to_numpy({**curves, "grid": grid, "line": line})


def bnn_floor(p: SpinningLines) -> float:
    """The least mean squared error of any single curve y = f(x), as the BNN's: E[x^2 Var(w|x_i)].

    Knowing one x_i only, w has variance sigma_w^2 + sigma^2 (n - 1) / n^2 (the other inputs stay unknown).
    """
    return (p.sigma**2 + p.mu**2) * (p.sigma_w**2 + p.sigma**2 * (p.n - 1) / p.n**2)


def _fit(
    p: SpinningLines,
    weights: Weights,
    x: Tensor,
    w: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    curves: Callable[[], dict[str, Tensor]],
    what: str,
) -> dict[str, Tensor]:
    """Adam for `epochs` passes. The loss sums over configurations, so each one's weights see their own gradient."""
    optimizer = torch.optim.Adam(weights.values(), lr=p.lr, fused=x.device.type != "mps")
    orders = _generators(p, stream=6)

    def measure() -> dict[str, Tensor]:
        with torch.no_grad():
            return curves()

    history = [measure()]
    with threads(1):
        for _ in steps(p.epochs, what, unit="epoch"):
            order = torch.stack([torch.randperm(p.tasks, generator=g) for g in orders])
            order = order.repeat(len(x) // p.seeds, 1).to(x.device)
            for batch in zip(*(_shuffled(t, order).split(p.batch, dim=1) for t in (x, w)), strict=True):
                optimizer.zero_grad()
                loss(*batch).backward()
                optimizer.step()
            history.append(measure())
    return {name: torch.stack([epoch[name] for epoch in history]) for name in history[0]}


def _mlp(weights: Weights, x: Tensor) -> Tensor:
    """Linear, ReLU, Linear, ReLU, Linear with each configuration's own weights; x [C, 1, N] -> [C, 1, N]."""
    hidden = torch.relu(torch.addcmul(weights["b1"], weights["w1"], x))
    hidden = torch.relu(torch.baddbmm(weights["b2"], weights["w2"], hidden))
    return torch.baddbmm(weights["b3"], weights["w3"], hidden)


def _shapes(width: int) -> dict[str, tuple[int, int]]:
    shapes = {}
    for i, (inputs, outputs) in enumerate([(1, width), (width, width), (width, 1)], start=1):
        shapes |= {f"w{i}": (outputs, inputs), f"b{i}": (outputs, 1)}
    return shapes


def _init_mlp(p: SpinningLines, stream: int) -> Tensor:
    """All weights in a row, [S, number]: uniform within 1/sqrt(inputs), torch's usual, but from our own generators."""
    shapes = _shapes(p.width)
    bounds = [1 / math.sqrt(shapes[f"w{name[1]}"][1]) for name in shapes]
    bound = torch.cat([torch.full((a * b,), v) for (a, b), v in zip(shapes.values(), bounds, strict=True)])
    uniform = [torch.rand(len(bound), generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return (2 * torch.stack(uniform) - 1) * bound


def _layers(row: Tensor, width: int) -> Weights:
    """A row of weights [S, number] cut into the layers' matrices and biases."""
    shapes = _shapes(width)
    parts = row.split([a * b for a, b in shapes.values()], dim=-1)
    return {name: part.unflatten(-1, shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _noise(p: SpinningLines, draws: int, stream: int) -> Tensor:
    """Standard normal noise for the BNN's weights, [draws, S, number of weights]."""
    number = sum(a * b for a, b in _shapes(p.width).values())
    drawn = [torch.randn(draws, number, generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return _on_device(torch.stack(drawn, 1))


def _generators(p: SpinningLines, stream: int) -> list[torch.Generator]:
    """One generator per seed; streams keep tasks, initial values, orders and noise apart from each other."""
    return [torch.Generator().manual_seed(1_000_003 * stream + s) for s in range(p.seed, p.seed + p.seeds)]


def _shuffled(values: Tensor, order: Tensor) -> Tensor:
    """Each configuration's tasks in its own order [C, tasks]."""
    return values[torch.arange(len(values), device=values.device)[:, None], order]


def _on_device(tensor: Tensor) -> Tensor:
    return tensor.to(pick_device(), torch.float32, copy=True)


def _each(tensor: Tensor, readings: int) -> Tensor:
    """[S, ...] -> [readings * S, ...] on the device."""
    return _on_device(tensor.repeat(readings, *[1] * (tensor.dim() - 1)))


def _final(curves: dict[str, Tensor]) -> dict[str, float]:
    """After the last epoch: the mean over seeds and the half-width of its 95 % interval (not for a single seed)."""
    last = {name: value[-1] for name, value in curves.items()}
    metrics = {name: float(value.mean()) for name, value in last.items()}
    if len(next(iter(last.values()))) > 1:
        metrics |= {f"{name}_ci95": float(1.96 * v.std() / math.sqrt(len(v))) for name, v in last.items()}
    return metrics


def _to_numpy(arrays: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: value.detach().to("cpu", torch.float32).numpy() for name, value in arrays.items()}
