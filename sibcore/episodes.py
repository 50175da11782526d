"""Few-shot tasks (episodes) as index tensors into a feature bank, thousands at a time.

Randomness is counter-based: every random number is a hash of (seed, task, place in the task). The i-th task of a seed
is therefore the same whatever the batch size, the device or the number of workers, and a training that goes on at step
12,345 needs no stored generator state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sibcore.seeds import gamma_quantile


@dataclass(frozen=True)
class Tasks:
    """T tasks of k ways, m support examples and n queries, as rows of a feature bank.

    Labels count from 0 to k - 1 inside each task; `classes` says which class of the split is behind each label.
    """

    support: Tensor  # [T, m] rows of the feature bank
    support_labels: Tensor  # [T, m]
    query: Tensor  # [T, n] rows of the feature bank
    query_labels: Tensor  # [T, n]
    classes: Tensor  # [T, k]

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: slice) -> Tasks:
        return Tasks(*(tensor[part] for tensor in vars(self).values()))

    def to(self, device: torch.device | str) -> Tasks:
        """Return the same tasks with their tensors on another device."""
        return Tasks(*(tensor.to(device) for tensor in vars(self).values()))


class EpisodeSampler:
    """Draws k-way s-shot tasks with kq queries from the classes of a data set.

    Classes and images never repeat inside a task, and support and query set are disjoint.

    Args:
        labels: the class of each image, whole numbers `[N]`. Classes may differ in size. Tasks are made on the device
            of this tensor.
        ways: k, classes of a task.
        shots: s, labelled images of each class.
        queries: q, unlabelled images of each class.
        seed: from 0 to 2^63 - 1; another seed gives other tasks.
        alpha: if given, the kq queries are spread over the classes by proportions from a symmetric Dirichlet(alpha).
            Needs scipy. By default each class has q.
        mixed: if true, only every second task is unbalanced by `alpha`.
        views: R. The feature bank is `[R * N, d]`, view after view, and each image of a task comes from a view drawn at
            random.
        class_names: names for error messages.
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
        """The images that a class must have. All queries of an unbalanced task may fall into one class."""
        return self.shots + (self.queries if self.alpha is None else self.ways * self.queries)

    @property
    def rows(self) -> int:
        """The rows R * N that the feature bank must have."""
        return self.views * len(self._images)

    @property
    def setup(self) -> dict[str, int | float | None]:
        """The settings that, together with the labels, decide which tasks are drawn."""
        return {name: getattr(self, name) for name in ("ways", "shots", "queries", "seed", "alpha", "mixed", "views")}

    def sample(self, start: int, count: int) -> Tasks:
        """Return the tasks `start` to `start + count - 1` of this sampler's seed."""
        device = self._size.device
        task = torch.arange(start, start + count, device=device)
        root = _mix(torch.full((), self.seed, device=device))
        key = _mix(root + _GOLDEN * (task + 1))  # [T]: a random number for each task, from which all others follow
        class_key, image_key, view_key, query_key = _split(key, 4).unbind(-1)

        ways = torch.arange(self.ways, device=device)
        classes = _distinct(class_key, torch.full_like(task, len(self._size)), self.ways)  # [T, k]
        place = _distinct(_split(image_key, self.ways), self._size[classes], self.images_per_class)
        images = self._images[self._first[classes].unsqueeze(-1) + place]  # [T, k, images_per_class]

        support = images[..., : self.shots].flatten(1)
        query = images[..., self.shots :].flatten(1)
        support_labels = ways.repeat_interleave(self.shots).expand(count, -1)
        query_labels = ways.repeat_interleave(self.queries).expand(count, -1)
        if self.alpha is not None:
            ends = self._query_ends(task, query_key)  # [T, k]; queries are laid out class by class
            slot = torch.arange(self.ways * self.queries, device=device).repeat(count, 1)
            query_labels = torch.searchsorted(ends, slot, right=True)  # [T, n]
            starts = F.pad(ends, (1, 0)).gather(1, query_labels)
            candidates = self.images_per_class - self.shots  # columns of `query` that belong to one class
            query = query.gather(1, query_labels * candidates + slot - starts)

        if self.views > 1:
            shots = support.shape[1]
            view = _below(_split(view_key, shots + query.shape[1]), self.views)
            first_row = view * len(self._images)
            support = support + first_row[:, :shots]
            query = query + first_row[:, shots:]
        return Tasks(support, support_labels, query, query_labels, classes)

    def batches(self, first: int, last: int, batch: int, block: int = 4096) -> Iterator[Tasks]:
        """Yield the batches `first` to `last - 1`, where batch i holds tasks i * batch to (i + 1) * batch - 1.

        Tasks are sampled in blocks of about `block`, because one large call costs far less than many small ones.
        """
        per_block = max(1, block // batch)
        for begin in range(first, last, per_block):
            count = min(per_block, last - begin)
            tasks = self.sample(begin * batch, count * batch)
            for i in range(count):
                yield tasks[i * batch : (i + 1) * batch]

    def _query_ends(self, task: Tensor, key: Tensor) -> Tensor:
        """Return the running total of queries over the classes of each task, [T, k]; the last one is kq."""
        n = self.ways * self.queries
        balanced = torch.arange(1, self.ways + 1, device=task.device) * self.queries
        # Dirichlet proportions are normalised gamma variables, here by inversion so that they stay counter-based
        uniform = (_shift(_split(key, self.ways), 11).double() + 0.5) * 2.0**-53
        gamma = gamma_quantile(self.alpha, uniform)
        share = gamma.cumsum(1) / gamma.sum(1, keepdim=True)
        drawn = (share * n).round().long().clamp_max(n).to(task.device)
        return torch.where(self.mixed & (task % 2 == 0).unsqueeze(1), balanced, drawn)

    def _check_classes(self, class_names: Sequence[str] | None) -> None:
        """Raise a ValueError if there are too few classes, or too few images in one."""
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


# The constants of SplitMix64 (Steele, Lea and Flood 2014) as signed 64-bit numbers; torch's int64 wraps around. A "key"
# is a random 64-bit number from which others are derived.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def _shift(x: Tensor, by: int) -> Tensor:
    """Shift to the right and fill with zeros (torch's >> copies the sign bit)."""
    return (x >> by).bitwise_and_(2 ** (64 - by) - 1)


def _mix(x: Tensor) -> Tensor:
    """Scramble 64-bit numbers by SplitMix64's last step."""
    x = _shift(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift(x, 31).bitwise_xor_(x)


def _split(key: Tensor, count: int) -> Tensor:
    """Derive `count` independent keys from each key: [...] -> [..., count]."""
    return _mix(key.unsqueeze(-1) + _GOLDEN * torch.arange(1, count + 1, device=key.device))


def _below(key: Tensor, bound: Tensor | int) -> Tensor:
    """Turn keys into uniform whole numbers in [0, bound) by their upper 32 bits (the bias is below bound / 2^32)."""
    return _shift(_shift(key, 32) * bound, 32)


def _distinct(key: Tensor, size: Tensor, count: int) -> Tensor:
    """Draw distinct numbers below `size` in random order, [...] -> [..., count], by Floyd's algorithm and a shuffle."""
    draws, order = _split(key, 2 * count).split(count, dim=-1)
    top = (size - count).unsqueeze(-1) + torch.arange(count, device=size.device)
    # draws come first in memory: one is compared with those before it, in all tasks at once
    chosen = _below(draws, top + 1).movedim(-1, 0).contiguous()
    top = top.movedim(-1, 0).contiguous()
    for i in range(1, count):
        taken = (chosen[:i] == chosen[i]).any(0)
        chosen[i] = torch.where(taken, top[i], chosen[i])
    return chosen.movedim(0, -1).gather(-1, order.argsort(dim=-1))
