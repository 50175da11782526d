"""A graph network over the support set and one query, whose edges are learned functions of differences."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.baselines.base import Head


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
    transductive = False
    defaults: ClassVar = {"width": 32}
    grid: ClassVar = {"width": (32,)}

    def build(self) -> None:
        self.embedding = nn.Parameter(torch.eye(self.dim))
        self.U, self.V = (nn.Linear(self.dim, self.width) for _ in range(2))
        self.edges = nn.ModuleList(Edge(size, self.width) for size in (self.dim, self.dim + self.width))
        self.out = nn.Parameter(torch.tensor([1.0, 10.0, 1.0]))

    def embed(self, features: Tensor) -> Tensor:
        return math.sqrt(self.dim) * features @ self.embedding  # coordinates of about 1

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        x, y = self.embed(support), self.membership(support, support_labels).mT  # [B, m, c] and [B, m, k]
        q, z = self.embed(query), y.new_full((*query.shape[:2], self.ways), 1 / self.ways)
        s = self.edges[0](x, x.unsqueeze(1), y, y.unsqueeze(1))  # [B, m, m]
        s = s.masked_fill(torch.eye(s.shape[-1], dtype=torch.bool, device=s.device), -torch.inf)
        t = self.edges[0](q, x.unsqueeze(1), z, y.unsqueeze(1))  # [B, n, m]
        A, of_query = s.softmax(-1), t.softmax(-1)

        # All graphs share the support set and s. The query's edge to node a is a share g_a of the softmax there; what
        # A x is without the query has the rest.
        g = (t - s.logsumexp(-1).unsqueeze(1)).sigmoid().unsqueeze(-1)  # [B, n, m, 1]
        mean = self.V(A @ x).unsqueeze(1).lerp(self.V(q).unsqueeze(2), g)
        news = F.leaky_relu(self.U(x).unsqueeze(1) + mean)
        news_of_query = F.leaky_relu(self.U(q) + self.V(of_query @ x))
        x_then = torch.cat([x.unsqueeze(1).expand(-1, q.shape[1], -1, -1), news], -1)  # [B, n, m, c']
        q_then = torch.cat([q, news_of_query], -1)
        y_then, z_then = (A @ y).unsqueeze(1).lerp(z.unsqueeze(2), g), of_query @ y

        last = self.edges[1](q_then, x_then, z_then, y_then).softmax(-1)  # [B, n, m]
        channels = [z_then, last @ y, (last.unsqueeze(2) @ y_then).squeeze(2)]
        return (torch.stack(channels, -1) * self.out).sum(-1)


class Edge(nn.Module):
    """Nodes a with features [B, A, c] and labels [B, A, k], b with [B, A or 1, N, c] and so on -> edges [B, A, N]."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(size + 1, width), nn.Linear(width, 1, bias=False)
        with torch.no_grad():  # falls with each difference, and units do so from various distances on
            self.hidden.weight.abs_()
            self.hidden.bias.copy_(-torch.rand(width) / 2 * self.hidden.weight.sum(1))
            self.last.weight.abs_().neg_()

    def forward(self, a: Tensor, b: Tensor, label: Tensor, labels: Tensor) -> Tensor:
        features, other = (a.unsqueeze(2) - b).abs(), (label.unsqueeze(2) - labels).abs().sum(-1, keepdim=True)
        return self.last(F.leaky_relu(self.hidden(torch.cat([features, other], -1)))).squeeze(-1)
