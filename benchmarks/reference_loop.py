"""SIB as one would write it down first: the yardstick of few_shot_speed.py.

Images go through f again in every step, augmented one by one for training; the inner step is `torch.autograd.grad` with
`create_graph=True`; batch norm inside xi takes its statistics over all queries of a batch of tasks; evaluation takes
one task at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore.datasets._torchvision import torchvision

MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.257, 0.276)


class ReferenceSIB(nn.Module):
    """features: support [B, m, d], one-hot labels [B, m, k], query [B, n, d] -> logits [B, n, k]."""

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
        return self.scale * (self.bias + F.normalize(query, dim=-1) @ F.normalize(theta, dim=-1).mT)


def transform(augment: bool):
    t = torchvision.transforms
    random = [t.RandomCrop(32, padding=4), t.ColorJitter(0.4, 0.4, 0.4), t.RandomHorizontalFlip()] if augment else []
    return t.Compose([t.ToPILImage(), *random, t.ToTensor(), t.Normalize(MEAN, STD)])


def features_of(f: nn.Module, images: Tensor, index: Tensor, prepare) -> Tensor:
    """uint8 images [N, 3, 32, 32] at index [B, m] -> features [B, m, d]."""
    with torch.no_grad():
        batch = torch.stack([prepare(images[i]) for i in index.flatten().tolist()])
        return f(batch).view(*index.shape, -1)


def train_step(model: ReferenceSIB, optimizer, support: Tensor, one_hot: Tensor, query: Tensor, labels: Tensor) -> None:
    logits = model(support, one_hot, query)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def accuracy(model: ReferenceSIB, support: Tensor, one_hot: Tensor, query: Tensor, labels: Tensor) -> float:
    return (model(support, one_hot, query).argmax(-1) == labels).float().mean().item()
