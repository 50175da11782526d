"""What the rivals have in common: their interface, a learned embedding, and class centres in the span of the points.

Every class centre or weight vector here is a weighted sum of the points of its task, w_j = sum_i A_ji x_i over the
N = m + n support and query points. So the coefficients A [B, k, N] and the inner products of the points [B, N, N] are
enough to compute with, and an iteration costs k N^2 operations instead of k N d. Tensors have the points last
([B, k, N]), so that sums over points run over contiguous memory.

Shapes: B tasks, k ways, m support examples, n queries, N = m + n points, d dimensions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.sib import unit


class Baseline(nn.Module):
    """A method without learned parameters: it classifies the queries of a task from their features alone.

    A subclass is one published method. It sets these attributes and implements `logits`.

    Attributes:
        title: name of the method in tables.
        paper: authors and year of the publication, for tables.
        transductive: whether the answer to one query depends on the other queries.
        trained: whether the method has parameters that are meta-trained (see `Head`).
        defaults: all hyper-parameters with their default values.
        grid: for some of the hyper-parameters, the values that `tune` tries on validation classes.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    transductive: ClassVar[bool] = False
    trained: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]]
    grid: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __init__(self, ways: int, **options: Any) -> None:
        """Check the hyper-parameters and make each of them an attribute.

        Args:
            ways: number of classes of a task, k.
            options: hyper-parameters that differ from `defaults`. A number must be positive. Any other value must be
                one of those in `grid`.
        """
        super().__init__()
        if ways < 2:
            raise ValueError(f"ways = {ways}: a task needs at least 2 classes")
        if unknown := options.keys() - self.defaults:
            raise TypeError(f"{self.title} has no {', '.join(unknown)}: expected {', '.join(self.defaults)}")
        self.ways, self.options = ways, self.defaults | options
        for name, value in self.options.items():
            if isinstance(self.defaults[name], bool | str):
                allowed, expected = value in self.grid[name], f"one of {self.grid[name]}"
            else:
                allowed, expected = value > 0, "a number above 0"
            if not allowed:
                raise ValueError(f"{name} = {value!r}: expected {expected}")
            setattr(self, name, value)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the queries.

        Args:
            support: support features of unit length, `[B, m, d]`.
            support_labels: their classes, integers from 0 to k - 1, `[B, m]`.
            query: query features of unit length, `[B, n, d]`.

        Returns:
            Logits, `[B, n, k]`.
        """
        classes = torch.arange(self.ways, device=support.device)
        one_hot = support_labels.unsqueeze(1) == classes[:, None]
        return self.logits(support, one_hot.to(support), query)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the queries: `answer` with one-hot labels.

        Args:
            support: support features of unit length, `[B, m, d]`.
            one_hot: 1 where example i is of class j, else 0, in the dtype of the features, `[B, k, m]`.
            query: query features of unit length, `[B, n, d]`.

        Returns:
            Logits, `[B, n, k]`.
        """
        raise NotImplementedError


class MovingCentres(Baseline):
    """A transductive method that starts from the class means and moves these centres for `steps` iterations.

    A subclass implements `step`, which computes the next coefficients of the centres. Queries are answered by their
    distances to the last centres, unless the subclass has other `point_logits`.
    """

    transductive = True

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        products = gram(support, query)
        A = self.coefficients(products, one_hot)
        return self.point_logits(A, products)[..., support.shape[1] :].mT

    def coefficients(self, products: Tensor, one_hot: Tensor) -> Tensor:
        """Return the coefficients of the centres after all steps.

        Args:
            products: inner products of the points, support first, `[B, N, N]`.
            one_hot: labels of the support set, `[B, k, m]`.

        Returns:
            A with w_j = sum_i A_ji x_i, `[B, k, N]`.
        """
        A = class_mean_coefficients(one_hot, products.shape[-1])
        for _ in range(self.steps):
            A = self.step(A, products, one_hot)
        return A

    def step(self, A: Tensor, products: Tensor, one_hot: Tensor) -> Tensor:
        """Return the coefficients `[B, k, N]` that follow `A [B, k, N]`. The other arguments are as above."""
        raise NotImplementedError

    def point_logits(self, A: Tensor, products: Tensor) -> Tensor:
        """Return the logits of all points, -scale ||x_i - w_j||^2, `[B, k, N]`."""
        return -self.scale * squared_distances(A, products)


class Head(Baseline):
    """A method whose parameters are meta-trained by `sibcore.train` on tasks of training classes, as SIB is.

    A subclass implements `build` and differentiable `logits`. The backbone is frozen: a head starts from its
    features. All heads except `SNAIL` treat the classes alike, so their order makes no difference.
    """

    trained = True

    def __init__(self, ways: int, dim: int, seed: int = 0, **options: Any) -> None:
        """Build the layers.

        Args:
            ways: number of classes of a task, k.
            dim: dimension of the features, d.
            seed: seed of the initial weights.
            options: hyper-parameters that differ from `defaults`.
        """
        super().__init__(ways, **options)
        self.dim, self.setup = dim, {"ways": ways, "dim": dim, "seed": seed, **self.options}
        with torch.random.fork_rng(devices=[]):  # torch's layers draw their first weights from the global generator
            torch.manual_seed(seed)
            self.build()

    def build(self) -> None:
        """Make the layers and parameters. `self.dim` and the hyper-parameters are set, and the generator is seeded."""
        raise NotImplementedError


class EmbeddingHead(Head):
    """A head that learns an embedding of the features and the scale of the logits, and perhaps more.

    The publications train all layers of a network. Here the backbone is frozen, and a small embedding on top of it is
    learned in its place. A subclass implements `embedded_logits`, which is given embedded features.
    """

    defaults: ClassVar = {"width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.embedded_logits(self.embed(support), one_hot, self.embed(query))

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        """Return the logits `[B, n, k]`, from embedded features and arguments as those of `logits`."""
        raise NotImplementedError


class Embedding(nn.Module):
    """A residual layer on the features, x -> x + V relu(U x), scaled to unit length.

    V is zero at first, so training starts from the frozen features.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.U, self.V = nn.Linear(dim, width), zeroed(nn.Linear(width, dim))

    def forward(self, features: Tensor) -> Tensor:
        """Map unit features `[..., d]` to unit features of the same shape."""
        return unit(features + self.V(self.U(features).relu()))


def zeroed(layer: nn.Linear) -> nn.Linear:
    """Set all weights of the layer to zero, so that a sum with its output starts as the other summand."""
    for weights in layer.parameters():
        nn.init.zeros_(weights)
    return layer


def log_parameter(start: float) -> nn.Parameter:
    """Make a learned positive number, stored as its logarithm, that begins at `start`."""
    return nn.Parameter(torch.tensor(start).log())


def mean_weights(weights: Tensor) -> Tensor:
    """Scale the weights `[B, k, N]` of each class to the sum 1, so that the weighted sum of the points is a mean."""
    return weights / weights.sum(-1, keepdim=True)


def class_means(features: Tensor, one_hot: Tensor) -> Tensor:
    """Return the mean `[B, k, d]` of the features `[B, m, d]` of each class, given one-hot labels `[B, k, m]`.

    It divides by the number of examples after the sum, as `sibcore.sib.class_means` does, and so rounds differently
    from `mean_weights(one_hot) @ features`.
    """
    return one_hot @ features / one_hot.sum(-1, keepdim=True)


def class_mean_coefficients(one_hot: Tensor, points: int) -> Tensor:
    """Return the coefficients `[B, k, N]` of the class means: queries do not count yet.

    Args:
        one_hot: labels of the support set, `[B, k, m]`.
        points: number of points of a task, N.
    """
    return mean_weights(F.pad(one_hot, (0, points - one_hot.shape[-1])))


def gram(support: Tensor, query: Tensor) -> Tensor:
    """Return the inner products `[B, N, N]` of all points of a task, support first."""
    points = torch.cat([support, query], 1)
    return points @ points.mT


def squared_distances(coefficients: Tensor, products: Tensor) -> Tensor:
    """Return ||x_i - w_j||^2 for the centres w_j = sum_i A_ji x_i.

    Args:
        coefficients: A, `[B, k, N]`.
        products: inner products of the points, `[B, N, N]`.

    Returns:
        Squared distances of all points to all centres, `[B, k, N]`.
    """
    inner = coefficients @ products
    lengths = (coefficients * inner).sum(-1, keepdim=True)
    return products.diagonal(dim1=1, dim2=2).unsqueeze(1) + lengths - 2 * inner
