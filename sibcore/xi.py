"""Synthetic gradient networks ξ. This file is the only place where one is written down.

A ξ looks at the logits ŷ of all queries of an episode and returns what stands in for dℓ/dŷ, the gradient that nobody
can compute without the queries' labels (section 3.2 of the paper). Training, evaluation, stacked training and
adaptation all call the same module.

To add one, write a class like those below and give it a line in `XIS`. From then on `SIB(..., xi="its name")`, the
settings of runs, the notebooks and the command line know it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["task", "running", "none"]
EPSILON = 1e-5  # keeps the variance of a norm away from zero, as in torch's batch normalisation
FUSED = True  # whether a norm and the layer after it are computed at once, see `norm_and_affine`


class Context(NamedTuple):
    """What a ξ may look at besides the logits: how similar the images of an episode are, and the support labels.

    Attributes:
        queries: cosines of the queries with each other, `[B, n, n]`.
        support: cosines of the queries with the support images, `[B, n, m]`; None where there is no support set.
        labels: labels of the support images, `[B, m]`; None where there is no support set.
    """

    queries: Tensor
    support: Tensor | None = None
    labels: Tensor | None = None


class Xi(nn.Module):
    """The base class of every ξ.

    Attributes:
        any_way: whether the parameters fit any number of classes.
        needs_context: whether `forward` reads the context. It is computed only for a ξ that does.
        default_width: the size of the hidden layers unless `SIB(width=...)` says otherwise.
    """

    any_way = False
    needs_context = False
    default_width = 0

    def __init__(self, ways: int, normalise: Norm = "task", width: int = 0) -> None:
        """Make a ξ for `ways` classes.

        Args:
            ways: number of classes k.
            normalise: which statistics normalise the hidden layers. "task": those of one episode's own queries, so
                that the episodes of a batch never influence each other. "running": those of the whole batch in
                training and their running average afterwards. "none": the hidden layers are not normalised.
            width: size of the hidden layers; 0 for the default of the class.
        """
        super().__init__()
        self.normalise = normalise
        self.width = width or self.default_width

    def forward(self, logits: Tensor, context: Context | None = None) -> Tensor:
        """Return the synthetic gradient of the logits ŷ.

        Args:
            logits: ŷ of the queries, `[B, n, k]`.
            context: what else is known of the episodes; None unless the class sets `needs_context`.

        Returns:
            ξ(ŷ), `[B, n, k]`.
        """
        raise NotImplementedError


class MLPXi(Xi):
    """The paper's ξ: an MLP over the k logits of one query, with two hidden layers of 8k units.

    Each hidden layer is followed by ReLU and batch normalisation. With `normalise="task"` and one episode this is
    exactly `nn.BatchNorm1d` in training mode, as in the authors' release.
    """

    def __init__(self, ways: int, normalise: Norm = "task", width: int = 0) -> None:
        super().__init__(ways, normalise, width or 8 * ways)
        sizes = [ways, self.width, self.width, ways]
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes))
        if normalise != "none":
            self.gains = nn.ParameterList(torch.ones(self.width) for _ in range(2))
            self.shifts = nn.ParameterList(torch.zeros(self.width) for _ in range(2))
        if normalise == "running":
            self.averages = nn.ModuleList(nn.BatchNorm1d(self.width, affine=False) for _ in range(2))

    def forward(self, logits: Tensor, context: Context | None = None) -> Tensor:
        """Return ξ(ŷ) `[B, n, k]`; the context plays no part."""
        h = logits.permute(2, 0, 1)  # [k, B, n]: sums over queries run over neighbouring numbers
        h = affine(self.layers[0].weight, self.layers[0].bias, h)
        for number, layer in enumerate(self.layers[1:]):
            h = F.relu(h, inplace=is_eager_evaluation())  # in place autograd would have to copy
            if FUSED and self.normalise == "task":
                h = norm_and_affine(layer, h, self.gains[number], self.shifts[number])
            else:
                h = affine(layer.weight, layer.bias, self.norm(h, number))
        return h.permute(1, 2, 0)

    def norm(self, h: Tensor, number: int) -> Tensor:
        """Normalise the hidden layer `h [width, B, n]` with this number."""
        if self.normalise == "none":
            return h
        gain, shift = self.gains[number][:, None, None], self.shifts[number][:, None, None]
        if self.normalise == "task":
            return gain * standardise(h) + shift
        return gain * self.averages[number](h.transpose(0, 1)).transpose(0, 1) + shift


class EquivariantXi(Xi):
    """A ξ that treats all classes alike: permuting the classes permutes its output, and it fits any number of them.

    A layer sees an entry and its mean over the classes, h_ij → A h_ij + C mean_j h_ij + b. That is the general linear
    map that commutes with permutations (Zaheer et al., 2017). Three layers are shared by all classes, with ReLU and a
    norm over all queries and classes of an episode between them.
    """

    any_way = True
    default_width = 16
    inputs = 1  # numbers that the first layer sees of a query and a class
    averaged = (2,)  # the dimensions of [h, B, k, n] over which a layer sees means: the classes

    def __init__(self, ways: int, normalise: Norm = "task", width: int = 0) -> None:
        super().__init__(ways, normalise, width)
        if normalise == "running":
            raise ValueError(f"{type(self).__name__} normalises by 'task' or not at all ('none'), got 'running'")
        seen = 1 + len(self.averaged)
        sizes = [self.inputs, self.width, self.width, 1]
        self.layers = nn.ModuleList(nn.Linear(seen * inputs, outputs) for inputs, outputs in pairwise(sizes))

    def forward(self, logits: Tensor, context: Context | None = None) -> Tensor:
        """Return ξ(ŷ) `[B, n, k]`; the context plays no part."""
        h = self.features(logits.mT)
        for number, layer in enumerate(self.layers):
            if number:
                h = F.relu(h)
                if self.normalise == "task":
                    h = standardise(h.flatten(2)).view_as(h)
            h = self.mix(layer, h)
        return h.squeeze(0).mT

    def features(self, logits: Tensor) -> Tensor:
        """Return what the first layer sees of each query and class, `[h, B, k, n]`, from logits `[B, k, n]`."""
        return logits.unsqueeze(0)

    def mix(self, layer: nn.Linear, h: Tensor) -> Tensor:
        """Apply a layer to every entry of `h [h, B, k, n]` and to the means around it."""
        own, *shared = layer.weight.chunk(1 + len(self.averaged), dim=1)
        mixed = linear(own, h) + layer.bias[:, None, None, None]
        for weight, dim in zip(shared, self.averaged, strict=True):
            mixed = mixed + linear(weight, h.mean(dim, keepdim=True))
        return mixed


class SetXi(EquivariantXi):
    """An equivariant ξ that sees the whole query set: a class's share of all predictions, and means over the queries.

    Of query i and class j it sees the centred logit, the probability, class j's share of all queries' probabilities,
    and how sure it is of query i. The numbers are scaled to similar sizes whatever the number of classes.
    """

    default_width = 32
    inputs = 4
    averaged = (2, 3)  # the classes, and the queries

    def features(self, logits: Tensor) -> Tensor:
        """Return what the first layer sees of each query and class, `[4, B, k, n]`, from logits `[B, k, n]`."""
        ways, p = logits.shape[1], logits.softmax(1)
        share = ways * p.mean(-1, keepdim=True).expand_as(p)
        sure = p.amax(1, keepdim=True).expand_as(p)
        return torch.stack([(logits - logits.mean(1, keepdim=True)) / 10, p, share, sure])


XIS: dict[str, type[Xi]] = {
    "mlp": MLPXi,
    "equivariant": EquivariantXi,
    "set": SetXi,
}


def affine(weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    """Apply a linear layer to the first dimension: `h [inputs, B, n]` → `[outputs, B, n]`."""
    if is_eager_evaluation():  # a product for each episode, in the order of memory: these spread over the cores
        weights = weight.expand(h.shape[1], -1, -1)
        return torch.baddbmm(bias[:, None], weights, h.transpose(0, 1)).transpose(0, 1)
    # one product for all queries: training is faster with it, compiled by a third
    return (weight @ h.flatten(1) + bias[:, None]).unflatten(1, h.shape[1:])


def norm_and_affine(layer: nn.Linear, h: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Return a layer's output for `gain * standardise(h) + shift`, with fewer passes over memory.

    The gain and the shift go into the layer's weights and biases. In evaluation the deviations do so, too: an episode
    divides its own copy of the weights instead of all its activations, and `h [inputs, B, n]` is overwritten.
    `FUSED = False` switches this rewrite off.
    """
    weight, bias = layer.weight * gain, layer.bias + layer.weight @ shift
    if not is_eager_evaluation():
        return affine(weight, bias, standardise(h))
    h = h.transpose(0, 1)  # [B, inputs, n], as it is in memory
    h = h.sub_(h.mean(-1, keepdim=True))
    variance = torch.linalg.vector_norm(h, dim=-1).square() / h.shape[-1]
    weights = weight * torch.rsqrt(variance + EPSILON).unsqueeze(1)  # [B, outputs, inputs]
    return torch.baddbmm(bias[:, None], weights, h).transpose(0, 1)


def is_eager_evaluation() -> bool:
    """Tell whether neither autograd nor the compiler watches: then a CPU is fastest with other operations."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling())


def linear(weight: Tensor, h: Tensor) -> Tensor:
    """Multiply the first dimension by a matrix: weight `[outputs, inputs]`, `h [inputs, ...]` → `[outputs, ...]`."""
    return (weight @ h.flatten(1)).unflatten(1, h.shape[1:])


def standardise(h: Tensor) -> Tensor:
    """Give the last dimension mean 0 and variance 1.

    This is a layer norm. Written out it is faster on a CPU, several times so when compiled. Only where autograd has to
    follow it operation by operation is torch's own faster.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return F.layer_norm(h.flatten(0, -2), h.shape[-1:], eps=EPSILON).view(h.shape)
    h = h - h.mean(-1, keepdim=True)
    variance = torch.linalg.vector_norm(h, dim=-1, keepdim=True).square() / h.shape[-1]
    return h * torch.rsqrt(variance + EPSILON)
