"""Transductive Propagation Network: labels spread over a graph whose scale is learned for each example."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Head
from sibrepro.rivals.embedding import Embedding, silent
from sibrepro.rivals.propagation import check_alpha, neighbour_graph, propagated


class TPN(Head):
    """Label propagation (`LabelPropagation`) with W_ij = exp(-||f(x_i) / sigma_i - f(x_j) / sigma_j||^2 / 2).

    sigma_i = exp(h(f(x_i))), where h is a small network and f an embedding; both are learned, and start from one
    sigma. Logits are scale log M with a scale to learn (the publication has none): M alone is too soft, and training
    would sharpen it by bending the graph. As in `LabelPropagation`, alpha is below the published 0.99. Left out on
    frozen features: h reads f(x_i) where the publication has convolutions, and all layers below f are not trained.
    """

    title = "TPN"
    paper = "Liu et al., 2019"
    transductive = True
    defaults: ClassVar = {"alpha": 0.7, "neighbours": 20, "width": 64}
    grid: ClassVar = {"alpha": (0.5, 0.7), "width": (64, 256)}

    def build(self) -> None:
        check_alpha(self.alpha)
        self.embed = Embedding(self.dim, self.width)
        self.h = nn.Sequential(nn.Linear(self.dim, self.width), nn.ReLU(), silent(nn.Linear(self.width, 1)))
        nn.init.constant_(self.h[-1].bias, math.log(0.3))
        self.log_scale = nn.Parameter(torch.tensor(2.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        W = self.graph(torch.cat([self.embed(support), self.embed(query)], 1))
        return self.log_scale.exp() * propagated(W, self.membership(support, support_labels), self.alpha)

    def graph(self, points: Tensor) -> Tensor:
        """W [B, N, N] of the points f(x) [B, N, d]."""
        scaled = points / self.h(points).exp()
        products = scaled @ scaled.mT
        lengths = products.diagonal(dim1=1, dim2=2) / 2
        logs = products - lengths.unsqueeze(1) - lengths.unsqueeze(2)
        near = neighbour_graph(logs.detach(), self.neighbours)
        return logs.exp() * (near | near.mT)
