"""SIB as one would write it down first, which few_shot_speed.py compares sibcore with.

Images pass through the backbone f again in every step, and are augmented one by one in training. The inner step is
`torch.autograd.grad` with `create_graph=True`. Batch norm inside xi takes its statistics over all queries of a batch of
tasks. Evaluation takes one task at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore.datasets._torchvision import torchvision

# Support features [B, m, d], their one-hot labels [B, m, k], query features [B, n, d], their labels [B, n].
Batch = tuple[Tensor, Tensor, Tensor, Tensor]
MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.257, 0.276)


class ReferenceSIB(nn.Module):
    """SIB on features, with one loop over the steps of eq. (sib).

    Args:
        ways: number of classes k.
        dim: size d of the features.
        steps: number of synthetic gradient steps K.
        eta: their size.
    """

    def __init__(self, ways: int, dim: int, steps: int, eta: float) -> None:
        super().__init__()
        self.steps, self.eta = steps, eta
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.prototype_weight = nn.Parameter(torch.ones(dim))
        self.xi = nn.Sequential(
            nn.Linear(ways, 8 * ways),
            nn.ReLU(),
            nn.BatchNorm1d(8 * ways, track_running_stats=False),
            nn.Linear(8 * ways, 8 * ways),
            nn.ReLU(),
            nn.BatchNorm1d(8 * ways, track_running_stats=False),
            nn.Linear(8 * ways, ways),
        )

    def forward(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        """Return logits `[B, n, k]` of queries `[B, n, d]`; support features are `[B, m, d]`, labels `[B, m, k]`."""
        prototypes = one_hot.mT @ F.normalize(support, dim=-1) / one_hot.sum(1).unsqueeze(-1)
        theta = prototypes * self.prototype_weight
        with torch.enable_grad():
            theta = theta if theta.requires_grad else theta.requires_grad_()
            for _ in range(self.steps):
                z = self.logits(query, theta)
                synthetic = self.xi(z.flatten(0, 1)).view_as(z)
                (gradient,) = torch.autograd.grad(z, theta, synthetic, create_graph=True)
                theta = theta - self.eta * gradient
        return self.logits(query, theta)

    def logits(self, query: Tensor, theta: Tensor) -> Tensor:
        """Classify queries `[B, n, d]` by their cosines with class weights `[B, k, d]`."""
        return self.scale * (self.bias + F.normalize(query, dim=-1) @ F.normalize(theta, dim=-1).mT)


def transform(augment: bool) -> Callable[[Tensor], Tensor]:
    """Return torchvision's transform of a uint8 image to the backbone's input, with random augmentation or without."""
    t = torchvision.transforms
    random = [t.RandomCrop(32, padding=4), t.ColorJitter(0.4, 0.4, 0.4), t.RandomHorizontalFlip()] if augment else []
    return t.Compose([t.ToPILImage(), *random, t.ToTensor(), t.Normalize(MEAN, STD)])


def features_of(f: nn.Module, images: Tensor, index: Tensor, prepare: Callable[[Tensor], Tensor]) -> Tensor:
    """Return features `[B, m, d]` of the images at index `[B, m]`, out of uint8 images `[N, 3, 32, 32]`."""
    with torch.no_grad():
        batch = torch.stack([prepare(images[i]) for i in index.flatten().tolist()])
        return f(batch).view(*index.shape, -1)


def train_step(model: ReferenceSIB, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Take one step of meta-training on a batch of tasks."""
    support, one_hot, query, labels = batch
    logits = model(support, one_hot, query)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def accuracy(model: ReferenceSIB, batch: Batch) -> float:
    """Return the share of queries that are classified rightly."""
    support, one_hot, query, labels = batch
    return (model(support, one_hot, query).argmax(-1) == labels).float().mean().item()
