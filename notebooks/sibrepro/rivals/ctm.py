"""Category traversal: a mask of the feature's dimensions that matter for a task, seen across its classes."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import class_means
from sibrepro.rivals.base import Head
from sibrepro.rivals.inductive import NearestCentroid


class CTM(Head):
    """Nearest centroids of mask * reshape(x), where the mask is a function of the support set.

    The concentrator is what the examples of a class have in common, o_j = mean_i relu(C x_i); the projector makes of
    these d softmax(P [mean_j o_j, var_j o_j]). `reshape` is linear and starts as the identity.
    Left out: convolutions, for frozen features have no places; and the projector sees the classes concatenated there,
    so that their order counts. The mask knows no query: nothing here is transductive.
    """

    title = "CTM"
    paper = "Li et al., 2019"
    transductive = False
    defaults: ClassVar = {"width": 256}
    grid: ClassVar = {"width": (256,)}

    def build(self) -> None:
        self.concentrate, self.project = nn.Linear(self.dim, self.width), nn.Linear(2 * self.width, self.dim)
        self.reshape = nn.Parameter(torch.eye(self.dim))
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.prototypical = NearestCentroid(self.ways, scale=1.0)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        mask = self.mask(support, support_labels)
        support, query = mask * (support @ self.reshape), mask * (query @ self.reshape)
        return self.log_scale.exp() * self.prototypical.answer(support, support_labels, query)

    def mask(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """[B, 1, d], of mean 1."""
        o, _ = class_means(self.concentrate(support).relu(), support_labels, self.ways)
        across = torch.cat([o.mean(1, keepdim=True), o.var(1, keepdim=True, correction=0)], -1)
        return self.dim * self.project(across).softmax(-1)
