"""What rivals share: their interface, an embedding to learn, and centres that are weighted sums of a task's points.

Every centre or weight vector here is w_j = sum_i A_ji x_i over the N points of a task, so A [B, k, N] and the Gram
matrix [B, N, N] of the points hold all there is to know: an iteration costs k N^2 instead of k N d operations. Tensors
inside have the points last ([B, k, N]), so that sums over points run over contiguous memory.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.sib import unit


class Baseline(nn.Module):
    """A method without parameters to learn: `answer` needs the features of a task and nothing else.

    `defaults` are its hyper-parameters, `grid` names the few values of some of them to choose among on validation
    classes (see `tune`).
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    transductive: ClassVar[bool] = False
    trained: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]]
    grid: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __init__(self, ways: int, **options: Any) -> None:
        """`options` are hyper-parameters other than by default: a number must be above 0, all else be in the grid."""
        super().__init__()
        if ways < 2:
            raise ValueError(f"ways = {ways}: a task needs at least 2 classes")
        if unknown := options.keys() - self.defaults:
            raise TypeError(f"{self.title} has no {', '.join(unknown)}: expected {', '.join(self.defaults)}")
        self.ways, self.options = ways, self.defaults | options
        for name, value in self.options.items():
            number = type(self.defaults[name]) in (int, float)
            if not (value > 0 if number else value in self.grid[name]):
                expected = "a number above 0" if number else f"one of {self.grid[name]}"
                raise ValueError(f"{name} = {value!r}: expected {expected}")
            setattr(self, name, value)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Unit features support [B, m, d] and query [B, n, d], support_labels [B, m] -> logits [B, n, k]."""
        raise NotImplementedError

    def membership(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """[B, k, m]: 1 where a support example is of the class, else 0, in the dtype of the features."""
        classes = torch.arange(self.ways, device=support.device)
        return (support_labels.unsqueeze(1) == classes[:, None]).to(support)

    def centres(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """The mean [B, k, d] of each class."""
        return shares(self.membership(support, support_labels)) @ support


class MovingCentres(Baseline):
    """Centres w_j start as the class means and move for `steps`; queries are answered by their place among them."""

    transductive = True

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        products, right = gram(support, query), self.membership(support, support_labels)
        return self.logits(self.coefficients(products, right), products)[..., support.shape[1] :].mT

    def coefficients(self, products: Tensor, right: Tensor) -> Tensor:
        """A [B, k, N] with w_j = sum_i A_ji x_i, from products [B, N, N] and right [B, k, m], the labels' one-hot."""
        A = shares(F.pad(right, (0, products.shape[-1] - right.shape[-1])))
        for _ in range(self.steps):
            A = self.step(A, products, right)
        return A

    def step(self, A: Tensor, products: Tensor, right: Tensor) -> Tensor:
        """The next A."""
        raise NotImplementedError

    def logits(self, A: Tensor, products: Tensor) -> Tensor:
        """Of all points, [B, k, N]."""
        return -self.scale * squared_distances(A, products)


class Head(Baseline):
    """A method whose parameters `sibcore.train` learns on tasks of training classes; `answer` has a gradient.

    `build` makes its layers for features [d], d = `self.dim`, inside of a seeded generator. All classes are treated
    alike and queries do not know their place, so a head does for any order of classes and of queries.
    """

    trained = True

    def __init__(self, ways: int, dim: int, seed: int = 0, **options: Any) -> None:
        super().__init__(ways, **options)
        self.dim, self.setup = dim, {"ways": ways, "dim": dim, "seed": seed, **self.options}
        with torch.random.fork_rng(devices=[]):  # torch's layers draw their first weights from the global generator
            torch.manual_seed(seed)
            self.build()

    def build(self) -> None:
        raise NotImplementedError


class Embedding(nn.Module):
    """x -> x + V relu(U x), scaled to length 1: learned in place of the network, which is frozen here.

    V = 0 at first: training starts from the frozen features.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.U, self.V = nn.Linear(dim, width), silent(nn.Linear(width, dim))

    def forward(self, features: Tensor) -> Tensor:
        """Unit features [..., d] -> [..., d]"""
        return unit(features + self.V(self.U(features).relu()))


def silent(layer: nn.Linear) -> nn.Linear:
    """The layer with all weights 0: whatever it is added to begins as it was."""
    for weights in layer.parameters():
        nn.init.zeros_(weights)
    return layer


def shares(weights: Tensor) -> Tensor:
    """[B, k, N] -> [B, k, N]: each class's weights scaled to the sum 1, so that its centre is a mean."""
    return weights / weights.sum(-1, keepdim=True)


def gram(support: Tensor, query: Tensor) -> Tensor:
    """Inner products [B, N, N] of all N = m + n points of a task, support first."""
    points = torch.cat([support, query], 1)
    return points @ points.mT


def squared_distances(weights: Tensor, products: Tensor) -> Tensor:
    """||x_i - w_j||^2 as [B, k, N], for w_j = sum_i A_ji x_i with A = weights [B, k, N] and products [B, N, N]."""
    inner = weights @ products
    lengths = (weights * inner).sum(-1, keepdim=True)
    return products.diagonal(dim1=1, dim2=2).unsqueeze(1) + lengths - 2 * inner
