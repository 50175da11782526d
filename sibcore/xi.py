"""The synthetic gradient network xi: logits y^ [B, n, k] -> [B, n, k], standing for dl/dy^.

`Xi` is the paper's, an MLP over the k logits of a query. `EquivariantXi` is one that treats all classes alike. Each
gives `of_cosines(scale, bias)`, a function of cosines c instead of logits y^ = scale (bias + c): what depends on the
parameters alone is then computed once, not in every step. Inside, queries come last in memory: sums over a task's
queries run over contiguous numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["task", "running", "none"]
EPSILON = 1e-5  # batch normalisation's


class Xi(nn.Module):
    """Linear(k, 8k) - ReLU - norm - Linear(8k, 8k) - ReLU - norm - Linear(8k, k).

    The norm is batch normalisation. "task": with batch statistics, taken over each task's own queries, so that tasks
    of a batch never influence each other; with one task it is exactly `nn.BatchNorm1d` in training mode, as in the
    authors' release. "running": with statistics of the whole batch in training and their running average afterwards,
    the textbook's way, in which a query's xi does not depend on the other queries. "none": no norm.
    """

    def __init__(self, ways: int, normalise: Norm = "task") -> None:
        super().__init__()
        sizes = [ways, 8 * ways, 8 * ways, ways]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.normalise = normalise
        if normalise != "none":
            self.gains = nn.ParameterList(torch.ones(size) for size in sizes[1:-1])
            self.shifts = nn.ParameterList(torch.zeros(size) for size in sizes[1:-1])
        if normalise == "running":
            self.averages = nn.ModuleList(nn.BatchNorm1d(size, affine=False) for size in sizes[1:-1])

    def folded(self, scale: Tensor | float = 1.0, bias: Tensor | float = 0.0) -> list[tuple[Tensor, Tensor]]:
        """Weights [out, in] and biases [out, 1] for inputs c, with the norms' gains and shifts in the layer after.

        Parameters may have further dimensions in front (see `sibcore.stack`), with scale [..., 1, 1], bias [..., 1].
        """
        weights, biases = [layer.weight for layer in self.layers], [layer.bias for layer in self.layers]
        weights[0] = weights[0] * scale
        biases[0] = biases[0] + bias * weights[0].sum(-1)
        if self.normalise != "none":
            for i, (gain, shift) in enumerate(zip(self.gains, self.shifts, strict=True), start=1):
                biases[i] = biases[i] + (weights[i] @ shift.unsqueeze(-1)).squeeze(-1)
                weights[i] = weights[i] * gain.unsqueeze(-2)
        return [(weight, bias.unsqueeze(-1)) for weight, bias in zip(weights, biases, strict=True)]

    def of_cosines(self, scale: Tensor | float, bias: Tensor | float) -> Callable[[Tensor], Tensor]:
        """[B, n, k] -> [B, n, k], of cosines."""
        *hidden, (last_weight, last_bias) = layers = self.folded(scale, bias)

        def xi(cosine: Tensor) -> Tensor:
            if self.normalise == "task" and not torch.is_grad_enabled():
                return _of_each_task(layers, cosine.mT).mT
            tasks, n, ways = cosine.shape
            x = cosine.permute(2, 0, 1).reshape(ways, tasks * n)  # features first, queries last
            for layer, (weight, bias) in enumerate(hidden):
                x = self._norm(torch.addmm(bias, weight, x).relu_(), layer, tasks)
            return torch.addmm(last_bias, last_weight, x).view(ways, tasks, n).permute(1, 2, 0)

        return xi

    def forward(self, logits: Tensor) -> Tensor:
        """[B, n, k] -> [B, n, k], of logits."""
        return self.of_cosines(1.0, 0.0)(logits)

    def _norm(self, x: Tensor, layer: int, tasks: int) -> Tensor:
        """x [8k, B n]"""
        if self.normalise == "task":
            return standardise(x.view(len(x), tasks, -1)).view(len(x), -1)
        if self.normalise == "running":
            return self.averages[layer](x.unsqueeze(0)).squeeze(0)
        return x


def _of_each_task(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """`Xi` of x [B, k, n] without gradient, a fifth faster: a task divides its own weights by its deviations."""
    for layer, (weight, bias) in enumerate(layers):
        if layer:
            x = x.relu_().sub_(x.mean(-1, keepdim=True))
            variance = torch.linalg.vector_norm(x, dim=-1).square_().div_(x.shape[-1])
            weight = weight * torch.rsqrt(variance.add_(EPSILON)).unsqueeze(-2)
        x = torch.baddbmm(bias, weight.expand(len(x), -1, -1), x)
    return x


class EquivariantXi(nn.Module):
    """Three layers shared by all classes, so that permuting the classes permutes the output, and any k will do.

    A layer sees an entry and its mean over the classes: h_ij -> A h_ij + C mean_j h_ij + b, the general linear map that
    is equivariant to permutations (Zaheer et al., 2017). Norms (statistics over a task's queries and classes together)
    stand where `Xi` has them.
    """

    averaged = (2,)  # dimensions of [h, B, k, n] over which a layer sees means: the classes

    def __init__(self, normalise: Norm = "task", width: int = 16) -> None:
        super().__init__()
        if normalise == "running":
            raise ValueError("an equivariant xi normalises by 'task' or not at all ('none')")
        sizes = [len(self.seen(torch.zeros(1, 2, 1))), width, width, 1]
        seen = 1 + len(self.averaged)
        self.layers = nn.ModuleList(nn.Linear(seen * a, b) for a, b in pairwise(sizes))
        self.normalise = normalise

    def of_cosines(self, scale: Tensor | float, bias: Tensor | float) -> Callable[[Tensor], Tensor]:
        """[B, n, k] -> [B, n, k], of cosines."""
        return lambda cosine: self(scale * (bias + cosine))

    def forward(self, logits: Tensor) -> Tensor:
        """[B, n, k] -> [B, n, k], of logits."""
        x = self.seen(logits.mT)
        for layer in self.layers:
            if layer is not self.layers[0]:
                x = F.relu(x)
                if self.normalise == "task":
                    x = standardise(x.flatten(2)).view_as(x)
            own, *shared = layer.weight.chunk(1 + len(self.averaged), dim=1)
            y = _mixed(own, x) + layer.bias[:, None, None, None]
            for weight, dim in zip(shared, self.averaged, strict=True):
                y = y + _mixed(weight, x.mean(dim, keepdim=True))
            x = y
        return x.squeeze(0).mT

    def seen(self, logits: Tensor) -> Tensor:
        """logits [B, k, n] -> what is known of each query and class, [h, B, k, n]."""
        return logits.unsqueeze(0)


class SetXi(EquivariantXi):
    """One that sees the whole query set: a class's share of all predictions, and means over the queries too.

    Of query i and class j it sees the centred logit, the probability, j's share of all queries' probabilities, and
    how sure i is; the numbers are scaled to be of like size whatever k is.
    """

    averaged = (2, 3)  # the classes, and the queries

    def seen(self, logits: Tensor) -> Tensor:
        ways, p = logits.shape[1], logits.softmax(1)
        share = ways * p.mean(-1, keepdim=True).expand_as(p)
        sure = p.amax(1, keepdim=True).expand_as(p)
        return torch.stack([(logits - logits.mean(1, keepdim=True)) / 10, p, share, sure])


def _mixed(weight: Tensor, x: Tensor) -> Tensor:
    """weight [out, h], x [h, ...] -> [out, ...]"""
    return (weight @ x.flatten(1)).unflatten(1, x.shape[1:])


def standardise(x: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the last dimension."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return F.layer_norm(x, x.shape[-1:], eps=EPSILON)
    # the same, spelt out: on a CPU it is faster than layer_norm but for the gradient, and several times so if compiled
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)
