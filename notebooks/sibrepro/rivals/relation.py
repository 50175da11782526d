"""Relation Networks: how alike two examples are is itself learned."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import Head, shares
from sibrepro.rivals.embedding import Embedding, silent


class Relation(Head):
    """scale cos(f(x), c_j) + r(f(x), c_j), with c_j the mean of class j's f(x_i) and r an MLP over the pair.

    f, scale and r are learned, by cross-entropy over the classes of a task; the publication has squared errors of
    sigmoid(r) against 0 or 1, and sums for means. The last layer of r is zero at first, so that training starts from
    the cosine. Left out on frozen features: r sees two vectors and not two maps of them, by linear layers and not by
    convolutions, and all layers below f are not trained.
    """

    title = "Relation Network"
    paper = "Sung et al., 2018"
    transductive = False
    defaults: ClassVar = {"width": 64}
    grid: ClassVar = {"width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.of_query, self.of_class = (nn.Linear(self.dim, self.width) for _ in range(2))
        self.hidden, self.score = nn.Linear(self.width, self.width), silent(nn.Linear(self.width, 1, bias=False))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        centres = unit(shares(self.membership(support, support_labels)) @ support)
        return self.log_scale.exp() * query @ centres.mT + self.relation(query, centres)

    def relation(self, query: Tensor, centres: Tensor) -> Tensor:
        """r of each of query [B, n, d] with each of centres [B, k, d], as [B, n, k]."""
        # a linear map of a pair is the sum of one of either
        pair = self.of_query(query).unsqueeze(2) + self.of_class(centres).unsqueeze(1)
        return self.score(self.hidden(pair.relu()).relu()).squeeze(-1)
