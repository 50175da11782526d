"""Prototypical Networks: distances to class means in a space that is learned."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Head, shares
from sibrepro.rivals.embedding import Embedding


class Prototypical(Head):
    """-scale ||f(x) - c_j||^2 / 2 with c_j the mean of class j's f(x_i); f and scale are learned.

    Left out on frozen features: f is a small residual network on top of them rather than all layers from the pixels
    on, and training tasks have as many ways as those of the test (the publication trains with more). It starts as
    `NearestCentroid`.
    """

    title = "Prototypical Network"
    paper = "Snell et al., 2017"
    transductive = False
    defaults: ClassVar = {"width": 64}
    grid: ClassVar = {"width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        centres = shares(self.membership(support, support_labels)) @ support
        # ||f(x)||^2 is the same for all classes, and the softmax does not see it
        return self.log_scale.exp() * (query @ centres.mT - centres.square().sum(-1).unsqueeze(1) / 2)
