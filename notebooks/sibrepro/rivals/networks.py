"""Heads that are networks over all examples of a task: as nodes of a graph, or as a sequence that a query ends."""

from __future__ import annotations

import itertools
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


class SNAIL(Head):
    """The task as a sequence of examples with their labels, and a query without one at its end.

    Attention, causal convolutions over time and attention again: each block adds channels to every token. No example
    sees a later one, so all queries share the states of the support set: a token for each example, and for each
    query one that stands where its own sequence would end. As published, answers depend on the order of the support
    set, and on which class has which label. The network starts close to attention to the labels of similar
    examples, a matching network; from anywhere else it needs far longer training.
    Left out: the feature network that learns along, one of three rounds of convolutions and attention, and a query's
    attention to itself.
    """

    title = "SNAIL"
    paper = "Mishra et al., 2018"
    defaults: ClassVar = {"width": 64, "length": 32}

    def build(self) -> None:
        delays = [2**i for i in range(math.ceil(math.log2(self.length)))]  # together they reach back `length` tokens
        sizes = itertools.count(self.dim + self.ways, self.width)
        blocks = [Attention(next(sizes), self.dim, self.width)]
        blocks += [Convolution(next(sizes), self.width, delay) for delay in delays]
        blocks += [Attention(next(sizes), self.dim, self.width)]
        self.blocks, self.out = nn.ModuleList(blocks), nn.Linear(next(sizes), self.ways)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        first, labels = self.blocks[0], slice(self.dim, self.dim + self.ways)
        gain = math.sqrt(3 / math.sqrt(self.dim))  # scores are 3 cosines: soft, so that examples of a class add up
        first.key.weight[:, : self.dim] = gain * torch.eye(self.dim)
        first.key.weight[:, labels] = 0
        first.asked.weight.copy_(first.key.weight)
        first.value.weight[: self.ways] = torch.eye(self.dim + self.ways)[labels]
        first.asked.bias.zero_()
        first.value.bias.zero_()
        self.out.weight.mul_(0.02)
        self.out.weight[:, self.dim + self.ways :][:, : self.ways] = 20 * torch.eye(self.ways)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m = support.shape[1]
        labels = self.membership(support, support_labels).mT
        support, query = math.sqrt(self.dim) * support, math.sqrt(self.dim) * query  # coordinates of about 1
        tokens = torch.cat([torch.cat([support, labels], -1), F.pad(query, (0, self.ways))], 1)
        for block in self.blocks:
            tokens = torch.cat([tokens, block(tokens, m)], -1)
        return self.out(tokens[:, m:])


class Attention(nn.Module):
    """Of each token [B, m + n, c] to the m support tokens of its time and before, which for a query is all of them."""

    def __init__(self, size: int, key: int, value: int) -> None:
        super().__init__()
        self.key = nn.Linear(size, key, bias=False)  # a bias would count the same for all examples
        self.asked, self.value = nn.Linear(size, key), nn.Linear(size, value)

    def forward(self, tokens: Tensor, m: int) -> Tensor:
        known = torch.ones(tokens.shape[1], m, dtype=torch.bool, device=tokens.device).tril()
        support = tokens[:, :m]
        return F.scaled_dot_product_attention(self.asked(tokens), self.key(support), self.value(support), known)


class Convolution(nn.Module):
    """tanh(f) sigmoid(g), both linear in a token and in the one `delay` earlier, or 0 where there is none."""

    def __init__(self, size: int, width: int, delay: int) -> None:
        super().__init__()
        self.delay, self.now, self.earlier = delay, nn.Linear(size, 2 * width), nn.Linear(size, 2 * width, bias=False)

    def forward(self, tokens: Tensor, m: int) -> Tensor:
        past = self.earlier(F.pad(tokens[:, :m], (0, 0, self.delay, 0))[:, : m + 1])
        of_queries = past[:, m:].expand(-1, tokens.shape[1] - m, -1)  # all come at time m
        f, g = (self.now(tokens) + torch.cat([past[:, :m], of_queries], 1)).chunk(2, -1)
        return f.tanh() * g.sigmoid()
