"""SIB as one would write it down first: the yardstick of few_shot_speed.py.

Images go through f again in every step, augmented one by one for training; the inner step is `torch.autograd.grad` with
`create_graph=True`; batch norm inside xi takes its statistics over all queries of a batch of tasks; evaluation takes
one task at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore.reference import synthesise
from sibcore.sib import SIB
from sibcore.vision._torchvision import torchvision

MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.257, 0.276)


def answer(sib: SIB, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
    """Features support [B, m, d], one-hot labels [B, m, k], query [B, n, d] -> logits [B, n, k]."""
    prototypes = one_hot.mT @ F.normalize(support, dim=-1) / one_hot.sum(1).unsqueeze(-1)
    theta = prototypes * sib.prototype_weight
    with torch.enable_grad():
        theta = theta if theta.requires_grad else theta.requires_grad_()
        for _ in range(sib.steps):
            z = classify(sib, query, theta)
            synthetic = synthesise(sib.xi, z.flatten(0, 1)).view_as(z)
            (gradient,) = torch.autograd.grad(z, theta, synthetic, create_graph=True)
            theta = theta - sib.eta * gradient
    return classify(sib, query, theta)


def classify(sib: SIB, query: Tensor, theta: Tensor) -> Tensor:
    return sib.scale * (sib.bias + F.normalize(query, dim=-1) @ F.normalize(theta, dim=-1).mT)


def transform(augment: bool):
    t = torchvision.transforms
    random = [t.RandomCrop(32, padding=4), t.ColorJitter(0.4, 0.4, 0.4), t.RandomHorizontalFlip()] if augment else []
    return t.Compose([t.ToPILImage(), *random, t.ToTensor(), t.Normalize(MEAN, STD)])


def features_of(f: nn.Module, images: Tensor, index: Tensor, prepare) -> Tensor:
    """uint8 images [N, 3, 32, 32] at index [B, m] -> features [B, m, d]."""
    with torch.no_grad():
        batch = torch.stack([prepare(images[i]) for i in index.flatten().tolist()])
        return f(batch).view(*index.shape, -1)


def train_step(sib: SIB, optimizer, support: Tensor, one_hot: Tensor, query: Tensor, labels: Tensor) -> None:
    logits = answer(sib, support, one_hot, query)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def accuracy(sib: SIB, support: Tensor, one_hot: Tensor, query: Tensor, labels: Tensor) -> float:
    return (answer(sib, support, one_hot, query).argmax(-1) == labels).float().mean().item()
