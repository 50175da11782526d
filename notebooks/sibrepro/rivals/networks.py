"""Heads that are networks over all examples of a task, as the nodes of a graph or as a sequence that a query ends.

Shapes: B tasks, k ways, m support examples, n queries, d dimensions.
"""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import Head


class GNN(Head):
    """GNN: a graph network over the support set and one query, whose edges depend on features and labels.

    Victor Garcia Satorras and Joan Bruna. "Few-Shot Learning with Graph Neural Networks." ICLR 2018.

    Each layer computes x -> [x, leaky(U x + V A x)] with A_ab = softmax_b edge(|x_a - x_b|, |y_a - y_b|) over b != a. A
    node has an embedded feature x and a label y in R^k, which is 1/k in the query. Labels spread along the same edges,
    y -> [y, A y]. Logit j is a weighted sum of the query's label channels of class j. Each query has a graph of its
    own, so queries do not influence each other. At first edges fall with the distance, so labels come from similar
    examples.

    Departures: the weights of the label channels are the same for all classes, whereas the published ones depend on the
    order of classes. The backbone is frozen, there is no batch normalisation, and there are two layers instead of
    three.

    Args:
        width: channels that a layer adds, and hidden units of the edge networks.
    """

    title = "GNN"
    paper = "Satorras & Bruna, 2018"
    defaults: ClassVar = {"width": 32}

    def build(self) -> None:
        self.embedding = nn.Parameter(torch.eye(self.dim))
        self.U, self.V = nn.Linear(self.dim, self.width), nn.Linear(self.dim, self.width)
        self.edges = nn.ModuleList([Edge(self.dim, self.width), Edge(self.dim + self.width, self.width)])
        self.out = nn.Parameter(torch.tensor([2.0, 20.0, 2.0]))

    def embed(self, features: Tensor) -> Tensor:
        """Return the embedded features in the same shape, scaled to coordinates of about 1."""
        return math.sqrt(self.dim) * features @ self.embedding

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        x, y = self.embed(support), one_hot.mT  # [B, m, c] and [B, m, k]
        q, z = self.embed(query), y.new_full((*query.shape[:2], self.ways), 1 / self.ways)
        s = self.edges[0](differences(x, x), differences(y, y))  # [B, m, m]
        s = s.masked_fill(torch.eye(s.shape[-1], dtype=torch.bool, device=s.device), -torch.inf)
        from_query = differences(q, x)
        t = self.edges[0](from_query, differences(z, y))  # [B, n, m]
        A, of_query = s.softmax(-1), t.softmax(-1)

        # All graphs share the support set and s. In the graph of a query, node a gives the edge to the query the share
        # g_a of its softmax, and the other edges, whose mean is A x, the rest.
        g = (t - s.logsumexp(-1).unsqueeze(1)).sigmoid().unsqueeze(-1)  # [B, n, m, 1]
        mean = self.V(A @ x).unsqueeze(1).lerp(self.V(q).unsqueeze(2), g)
        x_added = F.leaky_relu(self.U(x).unsqueeze(1) + mean)  # [B, n, m, width]
        q_added = F.leaky_relu(self.U(q) + self.V(of_query @ x)).unsqueeze(2)
        y_added = (A @ y).unsqueeze(1).lerp(z.unsqueeze(2), g)  # [B, n, m, k]
        z_added = (of_query @ y).unsqueeze(2)

        # Of the second layer only the query's own edges matter.
        from_query = torch.cat([from_query, (q_added - x_added).abs()], -1)
        last = self.edges[1](from_query, (z_added - y_added).abs()).softmax(-1).unsqueeze(2)  # [B, n, 1, m]
        channels = torch.cat([z_added, last @ y.unsqueeze(1), last @ y_added], 2)  # [B, n, 3, k]
        return self.out @ channels


def differences(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b| of all pairs of a `[B, n, c]` and b `[B, m, c]`, `[B, n, m, c]`."""
    return (a.unsqueeze(2) - b.unsqueeze(1)).abs()


class Edge(nn.Module):
    """A network that scores the edge between two nodes from the differences of their features and of their labels.

    It starts as falling with each difference. Its hidden units do so from various distances on.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(size + 1, width), nn.Linear(width, 1, bias=False)
        with torch.no_grad():
            self.hidden.weight.abs_()
            self.hidden.bias.copy_(-torch.rand(width) / 2 * self.hidden.weight.sum(1))
            self.last.weight.abs_().mul_(-0.3)  # softly, so that examples of a class add up

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Score edges `[...]` from differences of features `[..., c]` and of labels `[..., k]`."""
        inputs = torch.cat([features, labels.sum(-1, keepdim=True)], -1)
        return self.last(F.leaky_relu(self.hidden(inputs))).squeeze(-1)


class SNAIL(Head):
    """SNAIL: attention and causal convolutions over a sequence of labelled examples, which a query ends.

    Nikhil Mishra, Mostafa Rohaninejad, Xi Chen and Pieter Abbeel. "A Simple Neural Attentive Meta-Learner." ICLR 2018.

    Attention, convolutions over time and attention again each add channels to every token. No example sees a later one,
    so all queries share the states of the support set: there is a token for each example, and for each query one that
    stands where its own sequence would end. As published, answers depend on the order of the support set and on which
    class has which label. The network starts close to attention to the labels of similar examples, a Matching Network.
    From any other start it needs far longer training.

    Departures: the backbone is frozen, there is one round of convolutions instead of two and two attention blocks
    instead of three, and a query does not attend to itself.

    Args:
        width: channels that a block adds.
        length: number of tokens that the convolutions reach back.
    """

    title = "SNAIL"
    paper = "Mishra et al., 2018"
    defaults: ClassVar = {"width": 64, "length": 32}

    def build(self) -> None:
        sizes = itertools.count(self.dim + self.ways, self.width)
        self.blocks = nn.ModuleList([Attention(next(sizes), self.dim, self.width)])
        for exponent in range(math.ceil(math.log2(self.length))):
            self.blocks.append(Convolution(next(sizes), self.width, delay=2**exponent))
        self.blocks.append(Attention(next(sizes), self.dim, self.width))
        self.out = nn.Linear(next(sizes), self.ways)
        self.start_from_matching()

    @torch.no_grad()
    def start_from_matching(self) -> None:
        """Let the first attention copy the labels of similar examples, and the output read these copies."""
        first, size = self.blocks[0], self.dim + self.ways
        of_features, of_labels = torch.eye(size).split([self.dim, self.ways])
        gain = math.sqrt(3 / math.sqrt(self.dim))  # scores are 3 cosines: soft, so that examples of a class add up
        first.key.weight.copy_(gain * of_features)
        first.asked.weight.copy_(gain * of_features)
        first.asked.bias.zero_()
        first.value.weight[: self.ways] = of_labels
        first.value.bias.zero_()
        self.out.weight.mul_(0.02)
        self.out.weight[:, size : size + self.ways] = 20 * torch.eye(self.ways)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        m = support.shape[1]
        support, query = math.sqrt(self.dim) * support, math.sqrt(self.dim) * query  # coordinates of about 1
        tokens = torch.cat([torch.cat([support, one_hot.mT], -1), F.pad(query, (0, self.ways))], 1)
        for block in self.blocks:
            tokens = torch.cat([tokens, block(tokens, m)], -1)
        return self.out(tokens[:, m:])


class Attention(nn.Module):
    """Attention of each token to the support tokens up to its own time, which for a query are all of them."""

    def __init__(self, size: int, key: int, value: int) -> None:
        super().__init__()
        self.key = nn.Linear(size, key, bias=False)  # a bias would count the same for all examples
        self.asked, self.value = nn.Linear(size, key), nn.Linear(size, value)

    def forward(self, tokens: Tensor, m: int) -> Tensor:
        """Map tokens `[B, m + n, c]`, of which the first m are the support set, to values `[B, m + n, value]`."""
        known = torch.ones(tokens.shape[1], m, dtype=torch.bool, device=tokens.device).tril()
        support = tokens[:, :m]
        return F.scaled_dot_product_attention(self.asked(tokens), self.key(support), self.value(support), known)


class Convolution(nn.Module):
    """A gated causal convolution, tanh(f) sigmoid(g).

    f and g are linear in a token and in the one that came `delay` earlier, or in 0 if there is none.
    """

    def __init__(self, size: int, width: int, delay: int) -> None:
        super().__init__()
        self.delay = delay
        self.now = nn.Linear(size, 2 * width)
        self.earlier = nn.Linear(size, 2 * width, bias=False)

    def forward(self, tokens: Tensor, m: int) -> Tensor:
        """Map tokens `[B, m + n, c]`, of which the first m are the support set, to channels `[B, m + n, width]`."""
        delayed = F.pad(tokens[:, :m], (0, 0, self.delay, 0))[:, : m + 1]
        past = self.earlier(delayed)
        of_queries = past[:, m:].expand(-1, tokens.shape[1] - m, -1)  # every query comes at time m
        past = torch.cat([past[:, :m], of_queries], 1)
        f, g = (self.now(tokens) + past).chunk(2, -1)
        return f.tanh() * g.sigmoid()
