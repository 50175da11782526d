"""A graph network over the support set and one query, whose edges are learned functions of differences."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import Head


class GNN(Head):
    """Two layers x -> [x, leaky(U x + V A x)], where A_ab = softmax_b edge(|x_a - x_b|, |y_a - y_b|) over b != a.

    A node has an embedded feature x and a label y in R^k, 1/k in the query. Labels spread along the same edges, y ->
    [y, A y], and logit j is a weighted sum of the query's channels of class j: their weights are the same for all
    classes, where the published ones make the order of classes count. Each query has a graph of its own, hence is
    answered by itself. Edges start as falling with the distance, so labels come from similar examples.
    Left out: the feature network that learns along, batch normalisation, and one layer of three.
    """

    title = "GNN"
    paper = "Satorras & Bruna, 2018"
    defaults: ClassVar = {"width": 32}

    def build(self) -> None:
        self.embedding = nn.Parameter(torch.eye(self.dim))
        self.U, self.V = (nn.Linear(self.dim, self.width) for _ in range(2))
        self.edges = nn.ModuleList(Edge(size, self.width) for size in (self.dim, self.dim + self.width))
        self.out = nn.Parameter(torch.tensor([2.0, 20.0, 2.0]))

    def embed(self, features: Tensor) -> Tensor:
        return math.sqrt(self.dim) * features @ self.embedding  # coordinates of about 1

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        x, y = self.embed(support), self.membership(support, support_labels).mT  # [B, m, c] and [B, m, k]
        q, z = self.embed(query), y.new_full((*query.shape[:2], self.ways), 1 / self.ways)
        s = self.edges[0](apart(x, x), apart(y, y))  # [B, m, m]
        s = s.masked_fill(torch.eye(s.shape[-1], dtype=torch.bool, device=s.device), -torch.inf)
        from_query = apart(q, x)
        t = self.edges[0](from_query, apart(z, y))  # [B, n, m]
        A, of_query = s.softmax(-1), t.softmax(-1)

        # All graphs share the support set and s. The query's edge to node a is a share g_a of the softmax there; what
        # A x is without the query has the rest.
        g = (t - s.logsumexp(-1).unsqueeze(1)).sigmoid().unsqueeze(-1)  # [B, n, m, 1]
        mean = self.V(A @ x).unsqueeze(1).lerp(self.V(q).unsqueeze(2), g)
        x_news = F.leaky_relu(self.U(x).unsqueeze(1) + mean)  # [B, n, m, width]
        q_news = F.leaky_relu(self.U(q) + self.V(of_query @ x)).unsqueeze(2)
        y_news = (A @ y).unsqueeze(1).lerp(z.unsqueeze(2), g)  # [B, n, m, k]
        z_news = (of_query @ y).unsqueeze(2)

        from_query = torch.cat([from_query, (q_news - x_news).abs()], -1)
        last = self.edges[1](from_query, (z_news - y_news).abs()).softmax(-1).unsqueeze(2)  # [B, n, 1, m]
        channels = torch.cat([z_news, last @ y.unsqueeze(1), last @ y_news], 2)  # [B, n, 3, k]
        return self.out @ channels


def apart(a: Tensor, b: Tensor) -> Tensor:
    """|a - b| of all pairs: [B, A, c] and [B, N, c] -> [B, A, N, c]."""
    return (a.unsqueeze(2) - b.unsqueeze(1)).abs()


class Edge(nn.Module):
    """How near two nodes are: differences of features [..., c] and of labels [..., k] -> [...]."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(size + 1, width), nn.Linear(width, 1, bias=False)
        with torch.no_grad():  # falls with each difference, and units do so from various distances on
            self.hidden.weight.abs_()
            self.hidden.bias.copy_(-torch.rand(width) / 2 * self.hidden.weight.sum(1))
            self.last.weight.abs_().mul_(-0.3)  # softly, so that examples of a class add up

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        inputs = torch.cat([features, labels.sum(-1, keepdim=True)], -1)
        return self.last(F.leaky_relu(self.hidden(inputs))).squeeze(-1)
