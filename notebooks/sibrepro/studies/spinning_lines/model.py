"""Spinning lines (section 5.2): a zero-shot regression problem in which every quantity has a closed form.

A task draws inputs x_i ~ N(mu, sigma^2), a slope w = mean(x) + eps_w with eps_w ~ N(mu_w, sigma_w^2), and outputs
y_i = w x_i. There is no support set: at test time SIB sees the inputs x_i only and has to infer w from them.

The text leaves open how the likelihood is scaled, so every training is done for three readings of it (see
`likelihood_weights`), and for several seeds. All these configurations train in one pass: parameters and data have a
leading dimension C, the number of readings times the number of seeds.

Random numbers come from a generator for each seed and purpose. A purpose is an integer called `stream`: 0 training
tasks, 1 test tasks, 2 initial SIB, 3 initial BNN, 4 and 5 noise of the BNN in training and testing, 6 order of tasks.
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
    """The settings of a run: the problem and the training protocol, with the paper's values as defaults."""

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
        """Return mean and standard deviation of p(w), the distribution of slopes over tasks."""
        return self.mu + self.mu_w, math.hypot(self.sigma / math.sqrt(self.n), self.sigma_w)

    @property
    def information(self) -> float:
        """Return I(w; x) in nats, which the paper writes I(w; d): the entropy of p(w) minus that of p(w|x)."""
        return 0.5 * math.log1p(self.sigma**2 / (self.n * self.sigma_w**2))


@parameters
class SpinningLinesNotebook(SpinningLines):
    """The parameters of notebook 02. All readings of the likelihood are trained; one is chosen for Figure 3."""

    reduction: Reading = Field("sum", description="the reading of the likelihood shown in Figure 3")

    def experiment(self) -> SpinningLines:
        """Return the settings of the runs that the notebook asks for."""
        names = [field.name for field in dataclasses.fields(SpinningLines)]
        return SpinningLines(**{name: getattr(self, name) for name in names})


def likelihood_weights(p: SpinningLines) -> dict[Reading, float]:
    """Return what each reading of "-log p(d|w)" multiplies sum_i (y_i - w x_i)^2 / 2 with.

    sum             -log N(y_i; w x_i, 1) summed over i; the paper says that its loss "implies p(y|x,w) = N(wx, 1)"
    mean            the same divided by n, as in eq. (lik)
    sum_of_squares  the square without the 1/2 of a unit Gaussian, since "l_t is a mean squared error", summed over i as
                    in eq. (toy)
    """
    return {"sum": 1.0, "mean": 1.0 / p.n, "sum_of_squares": 2.0}


def sample_tasks(p: SpinningLines, stream: int) -> tuple[Tensor, Tensor]:
    """Draw the tasks of all seeds, on the CPU, so that every device sees the same ones.

    Args:
        p: the settings.
        stream: 0 for training tasks, 1 for test tasks; any other number gives further tasks.

    Returns:
        Inputs x `[S, tasks, n]` and slopes w `[S, tasks]`. The tasks of a seed do not depend on the other seeds.
    """
    xs, ws = [], []
    for g in _generators(p, stream):
        x = p.mu + p.sigma * torch.randn(p.tasks, p.n, generator=g, dtype=torch.float64)
        noise = torch.randn(p.tasks, generator=g, dtype=torch.float64)
        xs.append(x)
        ws.append(posterior_mean(p, x) + p.sigma_w * noise)
    return torch.stack(xs), torch.stack(ws)


def posterior_mean(p: SpinningLines, x: Tensor) -> Tensor:
    """Return the mean of p(w|x) = N(mean(x) + mu_w, sigma_w^2) for inputs x `[..., n]`, as `[...]`."""
    return x.mean(-1) + p.mu_w


def init_sib(p: SpinningLines) -> Weights:
    """Return the initial weights of SIB for each seed.

    They are "lambda" `[S]`, "psi" `[S, 2]`, the mean and the log standard deviation of p_psi, and "xi" `[S, number]`,
    a row of weights for `mlp`.
    """
    zeros = torch.zeros(p.seeds, 2, dtype=torch.float64)
    return {"lambda": zeros[:, 0], "psi": zeros, "xi": _init_mlp(p, stream=2)}


def mlp(row: Tensor, x: Tensor) -> Tensor:
    """Apply a network (linear, ReLU, linear, ReLU, linear) to every single number of x.

    Args:
        row: each configuration's weights, `[C, width² + 4 width + 1]`: matrix and bias of one layer after the other.
        x: numbers `[C, ...]`.

    Returns:
        The network's outputs, of the shape of x.
    """
    width = math.isqrt(row.shape[-1] + 3) - 2
    sizes = [width, width, width * width, width, width, 1]
    w1, b1, w2, b2, w3, b3 = (part[..., None] for part in row.split(sizes, dim=-1))
    hidden = torch.relu(torch.addcmul(b1, w1, x.reshape(len(x), 1, -1)))
    hidden = torch.relu(torch.baddbmm(b2, w2.view(-1, width, width), hidden))
    return torch.baddbmm(b3, w3.mT, hidden).view_as(x)


def trajectory(weights: Weights, x: Tensor, K: int, eta: float) -> list[Tensor]:
    """Take K synthetic gradient steps from theta^0 = lambda, eq. (toy).

    theta^{k+1} = theta^k - eta sum_i x_i xi(theta^k x_i), which is a plain sum over i and, unlike eq. (sib), has no KL
    term.

    Args:
        weights: as `init_sib` returns them, for C configurations.
        x: inputs `[C, tasks, n]`.
        K: number of steps.
        eta: step size.

    Returns:
        theta^0 ... theta^K, each `[C, tasks]`.
    """
    theta = weights["lambda"][:, None].expand(x.shape[:2])
    thetas = [theta]
    for _ in range(K):
        error = mlp(weights["xi"], theta[..., None] * x)
        theta = theta - eta * (x * error).sum(-1)
        thetas.append(theta)
    return thetas


def measures(p: SpinningLines, weight: T, theta: T, psi: tuple[T, T], v: T, S: T, squared_error: T) -> dict[str, T]:
    """Return the four curves of Figure 3 (left) and the objective (avi), for each task.

    No sampling is needed: with q = N(theta, sigma_w^2), E_q (y_i - w' x_i)^2 = x_i^2 ((w - theta)^2 + sigma_w^2).

    Args:
        p: the settings.
        weight: the weight of the likelihood, one of `likelihood_weights`.
        theta: the mean of q. This and the following are all tensors, or all numpy arrays, that can be broadcast.
        psi: mean and standard deviation of p_psi.
        v: the posterior mean, E[w|x].
        S: sum_i x_i^2.
        squared_error: (w - theta)^2.

    Returns:
        "mse"; the divergences "kl_posterior", from q to p(w|x), "kl_prior", from p_psi to p(w), and "information", from
        q to p_psi; and "objective", without the normalising constant of the likelihood.
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
    """Train SIB by Algorithm 1, for every reading and seed at once.

    Readings of one seed share tasks, initial values and the order of tasks.

    Returns:
        metrics: "<reading>/<curve>", the last value of each curve of `measures`, see `_final`.
        arrays: of R readings, in the order of `likelihood_weights`, the curves on test tasks `[R, epochs + 1, S]`,
            "theta", theta^0 ... theta^{K+1} of the test tasks `[R, K + 2, S, tasks]`, and "psi" `[R, S, 2]`; of the
            test tasks "w", "posterior_mean" and "sum_of_x_squared" `[S, tasks]`. The trajectories go one step further
            than was trained, as in the paper's middle panel (k = 0..4 at K = 3).
    """
    readings = likelihood_weights(p)
    weight = _on_device(torch.tensor(list(readings.values())).repeat_interleave(p.seeds)[:, None])
    train_tasks = [_on_device(values, len(readings)) for values in sample_tasks(p, stream=0)]
    test_x, test_w = (_on_device(values, len(readings)) for values in sample_tasks(p, stream=1))
    weights = {name: _on_device(value, len(readings)).requires_grad_() for name, value in init_sib(p).items()}

    def measured(theta: Tensor, x: Tensor, w: Tensor) -> dict[str, Tensor]:
        """Return the mean over tasks of each number in `measures`, `[C]`."""
        psi = weights["psi"][:, :1], weights["psi"][:, 1:].exp()
        tasks = posterior_mean(p, x), x.square().sum(-1), (w - theta).square()
        return {name: values.mean(-1) for name, values in measures(p, weight, theta, psi, *tasks).items()}

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return measured(trajectory(weights, x, p.K, p.eta)[-1], x, w)["objective"].sum()

    def curves() -> dict[str, Tensor]:
        parts = test_x.split(24, dim=1)  # small enough for the processor's cache
        theta = torch.cat([trajectory(weights, part, p.K, p.eta)[-1] for part in parts], dim=1)
        return measured(theta, test_x, test_w)

    by_epoch = _fit(p, weights.values(), train_tasks, loss, curves, f"SIB n={p.n} K={p.K}")
    by_epoch["theta"] = torch.stack(trajectory(weights, test_x, p.K + 1, p.eta))
    found = {name: values.unflatten(1, (-1, p.seeds)).movedim(1, 0) for name, values in by_epoch.items()}
    metrics = {}
    for i, reading in enumerate(readings):
        metrics |= _final({f"{reading}/{name}": found[name][i] for name in found if name != "theta"})
    x, w = sample_tasks(p, stream=1)
    found |= {"w": w, "posterior_mean": posterior_mean(p, x), "sum_of_x_squared": x.square().sum(-1)}
    found["psi"] = weights["psi"].unflatten(0, (-1, p.seeds))
    return metrics, _to_numpy(found)


def bnn_experiment(p: SpinningLines) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Train the baseline: one Bayesian neural network for the pooled tasks, by Bayes by Backprop, with SIB's budget.

    The network maps x to y and cannot tell tasks apart. Its loss is summed over the inputs of a task.

    Returns:
        metrics: "mse", the last test error, see `_final`.
        arrays: "mse", the test error `[epochs + 1, S]`, and "line", the predicted y `[S, 61]` at "grid" `[S, 61]`.
    """
    train_tasks = [_on_device(values) for values in sample_tasks(p, stream=0)]
    test_x, test_w = (_on_device(values) for values in sample_tasks(p, stream=1))
    # A Gaussian over the network's weights. Its means begin as the weights of a plain network.
    mean = _on_device(_init_mlp(p, stream=3)).requires_grad_()
    log_std = torch.full_like(mean, -3.0, requires_grad=True)
    eps = iter(_noise(p, p.epochs * math.ceil(p.tasks / p.batch), stream=4))

    def loss(x: Tensor, w: Tensor) -> Tensor:
        error = w[..., None] * x - mlp(mean + log_std.exp() * next(eps), x)
        kl = kl_gaussian(mean, log_std.exp(), 0.0, 1.0).sum()  # to the prior N(0, 1), once for all tasks together
        return 0.5 * error.square().sum(-1).mean(-1).sum() + kl / p.tasks

    def predictive_mean(x: Tensor) -> Tensor:
        return torch.stack([mlp(mean + log_std.exp() * eps, x) for eps in _noise(p, 8, stream=5)]).mean(0)

    def curves() -> dict[str, Tensor]:
        return {"mse": (test_w[..., None] * test_x - predictive_mean(test_x)).square().mean((-1, -2))}

    found = _fit(p, (mean, log_std), train_tasks, loss, curves, f"BNN n={p.n}")
    metrics = _final(found)
    grid = _on_device(torch.linspace(p.mu - 3 * p.sigma, p.mu + 3 * p.sigma, 61).expand(p.seeds, 61))
    return metrics, _to_numpy(found | {"grid": grid, "line": predictive_mean(grid)})


def bnn_floor(p: SpinningLines) -> float:
    """Return the least mean squared error of any single curve y = f(x), such as the BNN's: E[x^2 Var(w|x_i)].

    If only one x_i is known, w has variance sigma_w^2 + sigma^2 (n - 1) / n^2, because the other inputs are not.
    """
    return (p.sigma**2 + p.mu**2) * (p.sigma_w**2 + p.sigma**2 * (p.n - 1) / p.n**2)


def _fit(
    p: SpinningLines, weights: Iterable[Tensor], tasks: Sequence[Tensor], loss: Callable, curves: Callable, what: str
) -> dict[str, Tensor]:
    """Train weights by Adam and return what `curves()` measures before the first epoch and after each.

    Args:
        p: the settings.
        weights: the tensors to train, in place.
        tasks: inputs `[C, tasks, n]` and slopes `[C, tasks]`.
        loss: gives the loss of a batch of tasks, summed over configurations, so that each has its own gradient.
        curves: gives numbers to follow, each `[C]`.
        what: the name of the training in the progress bar.

    Returns:
        Each curve, `[epochs + 1, C]`.
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
    """Draw rows of weights for `mlp`, `[S, number]`, uniform within 1/sqrt(inputs), as torch initialises layers."""
    bound = torch.full((p.width**2 + 4 * p.width + 1,), 1 / math.sqrt(p.width))
    bound[: 2 * p.width] = 1  # the first layer has one input
    uniform = [torch.rand(len(bound), generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return (2 * torch.stack(uniform) - 1) * bound


def _noise(p: SpinningLines, draws: int, stream: int) -> Tensor:
    """Draw standard normal noise for the BNN's weights, `[draws, S, number of weights]`."""
    shape = (draws, p.width**2 + 4 * p.width + 1)
    drawn = [torch.randn(shape, generator=g, dtype=torch.float64) for g in _generators(p, stream)]
    return _on_device(torch.stack(drawn, 1))


def _generators(p: SpinningLines, stream: int) -> list[torch.Generator]:
    """Return a generator for each seed. Different purposes use different streams: see the top of this module."""
    return [torch.Generator().manual_seed(1_000_003 * stream + s) for s in range(p.seed, p.seed + p.seeds)]


def _on_device(tensor: Tensor, readings: int = 1) -> Tensor:
    """Copy a tensor `[S, ...]` to the device, once for each reading: `[readings * S, ...]`."""
    return tensor.repeat(readings, *[1] * (tensor.dim() - 1)).to(pick_device(), torch.float32)


def _final(curves: dict[str, Tensor]) -> dict[str, float]:
    """Return the mean over seeds of curves `[epochs + 1, S]` after the last epoch.

    Each has "..._ci95", the half-width of its 95 % interval, unless there is a single seed.
    """
    last = pd.DataFrame({name: values[-1].tolist() for name, values in curves.items()}, dtype=np.float32)
    intervals = (1.96 * last.sem()).add_suffix("_ci95").dropna()
    return last.mean().to_dict() | intervals.to_dict()


def _to_numpy(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors as numpy arrays in single precision."""
    return {name: tensor.detach().to("cpu", torch.float32).numpy() for name, tensor in tensors.items()}
