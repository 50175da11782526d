"""Task-dependent adaptive metric: a prototypical network whose embedding is conditioned on the task."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import class_means
from sibrepro.rivals.base import Head
from sibrepro.rivals.inductive import NearestCentroid


class TADAM(Head):
    """Nearest centroids of embed(x) = x + V relu((1 + gamma) W x + beta), with a learned scale of the metric.

    gamma = gamma_0 g and beta = beta_0 b, where a network makes (g, b) of the task: of the mean of its prototypes
    under gamma = beta = 0. The numbers gamma_0 and beta_0 start small, so that conditioning has to prove its worth.
    Left out: conditioning is of one residual block, not of each layer of the feature network, which learns on all base
    classes at the same time.
    """

    title = "TADAM"
    paper = "Oreshkin et al., 2018"
    transductive = False
    defaults: ClassVar = {"width": 256}
    grid: ClassVar = {"width": (256,)}

    def build(self) -> None:
        self.W, self.V = nn.Linear(self.dim, self.width), nn.Linear(self.width, self.dim)
        nn.init.normal_(self.V.weight, std=0.1 / math.sqrt(self.width))  # the embedding starts near the identity
        self.conditions = nn.Sequential(
            nn.Linear(self.dim, self.width), nn.ReLU(), nn.Linear(self.width, 2 * self.width)
        )
        self.gamma_0, self.beta_0 = (nn.Parameter(torch.tensor(0.1)) for _ in range(2))
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.prototypical = NearestCentroid(self.ways, scale=1.0)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        prototypes, _ = class_means(self.embed(support), support_labels, self.ways)
        g, b = self.conditions(prototypes.mean(1, keepdim=True)).chunk(2, -1)  # [B, 1, width]
        gamma, beta = self.gamma_0 * g, self.beta_0 * b
        support, query = self.embed(support, gamma, beta), self.embed(query, gamma, beta)
        return self.log_scale.exp() * self.prototypical.answer(support, support_labels, query)

    def embed(self, features: Tensor, gamma: Tensor | float = 0.0, beta: Tensor | float = 0.0) -> Tensor:
        return features + self.V(((1 + gamma) * self.W(features) + beta).relu())
