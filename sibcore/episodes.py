"""Few-shot tasks (episodes) as index tensors into a feature bank, thousands at a time.

Randomness is counter-based: every number is a hash of (seed, task, place in the task), so the i-th task of a seed is
the same whatever the batch size, the device or the number of workers, and resuming at step 12,345 needs no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from scipy.special import gammaincinv
from torch import Tensor


@dataclass(frozen=True)
class Tasks:
    """T tasks of k ways. Indices are rows of the feature bank; labels are 0..k-1 inside the task."""

    support: Tensor  # [T, m] indices
    support_labels: Tensor  # [T, m]
    query: Tensor  # [T, n] indices
    query_labels: Tensor  # [T, n]
    classes: Tensor  # [T, k]: the class of the split behind each label

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: slice) -> Tasks:
        return Tasks(*(getattr(self, field.name)[part] for field in fields(self)))

    def to(self, device: torch.device | str) -> Tasks:
        return Tasks(*(getattr(self, field.name).to(device) for field in fields(self)))


class EpisodeSampler:
    """k-way s-shot tasks with kq queries, drawn from the classes of `labels [N]`.

    Classes and images never repeat inside a task, and support and query are disjoint. Classes may differ in size.
    With `alpha` the kq queries are spread over the classes by proportions from a symmetric Dirichlet(alpha), in every
    task or, if `mixed`, in every second one; else each class has q. With `views` = R the bank is [R * N, d], view after
    view, and each image of a task comes from a view drawn at random. Tensors are made on the device of `labels`.
    """

    def __init__(
        self,
        labels: Tensor,
        ways: int,
        shots: int,
        queries: int,
        seed: int,
        *,
        alpha: float | None = None,
        mixed: bool = False,
        views: int = 1,
        class_names: Sequence[str] | None = None,
    ) -> None:
        for name, value in {"ways": ways, "shots": shots, "queries": queries, "views": views}.items():
            if value < 1:
                raise ValueError(f"{name} = {value}: a task needs at least 1")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed = {seed}: expected a whole number from 0 to 2^63 - 1")
        if alpha is not None and not alpha > 0:
            raise ValueError(f"alpha = {alpha}: the Dirichlet parameter must be positive, or None for balanced queries")
        if labels.ndim != 1 or labels.is_floating_point() or labels.numel() == 0 or labels.min() < 0:
            raise ValueError(f"labels: expected class indices >= 0 of shape [N], got {labels.dtype} {[*labels.shape]}")
        self.ways, self.shots, self.queries, self.seed = ways, shots, queries, seed
        self.alpha, self.mixed, self.views = alpha, mixed, views
        self._size = torch.bincount(labels)  # [C]
        self._first = self._size.cumsum(0) - self._size  # [C]: where a class begins in _images
        self._images = labels.argsort(stable=True)  # [N]: images class by class
        self._check_classes(class_names)

    @property
    def images_per_class(self) -> int:
        """How many images a class must have: unbalanced queries may all fall into one class."""
        return self.shots + (self.queries if self.alpha is None else self.ways * self.queries)

    @property
    def rows(self) -> int:
        """How many rows the feature bank must have: R * N."""
        return self.views * len(self._images)

    @property
    def setup(self) -> dict[str, int | float | None]:
        """What decides the tasks, beside the labels."""
        return {name: getattr(self, name) for name in ("ways", "shots", "queries", "seed", "alpha", "mixed", "views")}

    def sample(self, start: int, count: int) -> Tasks:
        """Tasks `start` to `start + count - 1` of this sampler's seed."""
        device = self._size.device
        task = torch.arange(start, start + count, device=device)
        root = _mix(torch.full((), self.seed, device=device))
        class_stream, image_stream, view_stream, query_stream = _split(_mix(root + _GOLDEN * (task + 1)), 4).unbind(-1)

        ways = torch.arange(self.ways, device=device)
        classes = _distinct(class_stream, torch.full_like(task, len(self._size)), self.ways)  # [T, k]
        place = _distinct(_split(image_stream, self.ways), self._size[classes], self.images_per_class)
        images = self._images[self._first[classes].unsqueeze(-1) + place]  # [T, k, images_per_class]

        support, query = images[..., : self.shots].flatten(1), images[..., self.shots :].flatten(1)
        support_labels, query_labels = (ways.repeat_interleave(n).expand(count, -1) for n in (self.shots, self.queries))
        if self.alpha is not None:
            ends = self._query_ends(task, query_stream)  # [T, k]; queries are laid out class by class
            slot = torch.arange(self.ways * self.queries, device=device).repeat(count, 1)
            query_labels = torch.searchsorted(ends, slot, right=True)  # [T, n]
            starts = torch.nn.functional.pad(ends, (1, 0)).gather(1, query_labels)
            query = query.gather(1, query_labels * (self.images_per_class - self.shots) + slot - starts)

        if self.views > 1:
            view = _below(_split(view_stream, support.shape[1] + query.shape[1]), self.views) * len(self._images)
            support, query = support + view[:, : support.shape[1]], query + view[:, support.shape[1] :]
        return Tasks(support, support_labels, query, query_labels, classes)

    def batches(self, first: int, last: int, batch: int, block: int = 4096) -> Iterator[Tasks]:
        """Batch i holds tasks i * batch to (i + 1) * batch - 1, for i from `first` to `last` - 1.

        Tasks are sampled in blocks, because one large call costs far less than many small ones.
        """
        per_block = max(1, block // batch)
        for begin in range(first, last, per_block):
            count = min(per_block, last - begin)
            tasks = self.sample(begin * batch, count * batch)
            yield from (tasks[i * batch : (i + 1) * batch] for i in range(count))

    def _query_ends(self, task: Tensor, stream: Tensor) -> Tensor:
        """[T, k]: the running total of queries over the classes of each task; the last one is kq."""
        n = self.ways * self.queries
        balanced = (torch.arange(1, self.ways + 1, device=task.device) * self.queries).expand(len(task), -1)
        # Dirichlet proportions are normalised gamma variables, here by inversion so that they stay counter-based.
        uniform = (_shift(_split(stream, self.ways), 11).double() + 0.5) * 2.0**-53
        gamma = torch.from_numpy(gammaincinv(self.alpha, uniform.cpu().numpy())).clamp_min(1e-300)
        share = gamma.cumsum(1) / gamma.sum(1, keepdim=True)
        drawn = (share * n).round().long().clamp_max(n).to(task.device)
        return torch.where(self.mixed & (task % 2 == 0).unsqueeze(1), balanced, drawn)

    def _check_classes(self, class_names: Sequence[str] | None) -> None:
        if len(self._size) < self.ways:
            raise ValueError(
                f"{self.ways}-way tasks need at least {self.ways} classes, but this split has {len(self._size)}: "
                "lower ways or use another split"
            )
        for label in (self._size < self.images_per_class).nonzero().flatten().tolist():
            name = class_names[label] if class_names else label
            raise ValueError(
                f"class {name!r} has {int(self._size[label])} images, but a task takes {self.images_per_class} of a "
                f"class ({self.shots} shots and {self.images_per_class - self.shots} queries): "
                "lower shots or queries, or leave the class out"
            )


# The constants of SplitMix64 (Steele, Lea and Flood 2014) as signed 64-bit numbers; torch's int64 wraps around.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right (torch's >> copies the sign bit)."""
    return (x >> by).bitwise_and_(2 ** (64 - by) - 1)


def _mix(x: Tensor) -> Tensor:
    x = _shift(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift(x, 31).bitwise_xor_(x)


def _split(stream: Tensor, count: int) -> Tensor:
    """[...] -> [..., count]: independent random 64-bit numbers, each usable as a stream of its own."""
    return _mix(stream.unsqueeze(-1) + _GOLDEN * torch.arange(1, count + 1, device=stream.device))


def _below(stream: Tensor, bound: Tensor | int) -> Tensor:
    """Uniform whole numbers in [0, bound), from the upper 32 bits (the bias is below bound / 2^32)."""
    return _shift(_shift(stream, 32) * bound, 32)


def _distinct(stream: Tensor, size: Tensor, count: int) -> Tensor:
    """[...] -> [..., count]: distinct numbers below `size` in random order (Floyd's algorithm, then a shuffle)."""
    draws, keys = _split(stream, 2 * count).split(count, dim=-1)
    top = (size - count).unsqueeze(-1) + torch.arange(count, device=size.device)
    # draws come first in memory: one is compared with those before it, in all tasks at once
    chosen, top = (x.movedim(-1, 0).contiguous() for x in (_below(draws, top + 1), top))
    for i in range(1, count):
        taken = (chosen[:i] == chosen[i]).any(0)
        chosen[i] = torch.where(taken, top[i], chosen[i])
    return chosen.movedim(0, -1).gather(-1, keys.argsort(dim=-1))
