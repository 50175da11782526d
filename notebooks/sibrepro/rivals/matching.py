"""Matching Networks with full context embeddings: attention over a support set that has been read as a whole."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import Head
from sibrepro.rivals.embedding import Embedding, silent
from sibrepro.rivals.inductive import attention_by_class


class MatchingFCE(Head):
    """p(j) = sum_{i of class j} softmax_i(scale cos(f(x), g(x_i))), where f and g know the whole support set.

    g(x_i) = x_i + what a bidirectional LSTM says at x_i when it reads the support set; f(x) = x + what an LSTM says of
    x after `steps` looks at the g(x_i), each by attention from its last f(x). Without `context` f(x) = g(x) = x, and
    the embedding alone is learned. A set has no order, but an LSTM reads in one: here from the most to the least
    typical example, nearest to the mean first (the publication: at random). The LSTMs have `width` units, the
    published ones as many as there are features, and a linear map that is zero at first: it starts as `MatchingNet`.
    Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "Matching Network, FCE"
    paper = "Vinyals et al., 2016"
    transductive = False
    defaults: ClassVar = {"context": True, "width": 64, "steps": 3}
    grid: ClassVar = {"context": (True, False), "width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        if self.context:
            self.reader = nn.LSTM(self.dim, self.width, batch_first=True, bidirectional=True)
            self.of_reader = silent(nn.Linear(2 * self.width, self.dim))
            self.looker = nn.LSTMCell(2 * self.dim, self.width)
            self.of_looker = silent(nn.Linear(self.width, self.dim))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        g, f = self.embed(support), self.embed(query)
        if self.context:
            g = self.read(g)
            f = self.look(f, g)
        return attention_by_class(self.similarity(f, g), self.membership(support, support_labels))

    def similarity(self, f: Tensor, g: Tensor) -> Tensor:
        return self.log_scale.exp() * unit(f) @ unit(g).mT

    def read(self, support: Tensor) -> Tensor:
        """g of the support examples, [B, m, d] -> [B, m, d]."""
        order = (support @ support.mean(1).unsqueeze(-1)).argsort(1, descending=True).expand_as(support)
        said = self.of_reader(self.reader(support.gather(1, order))[0])
        return support + torch.zeros_like(said).scatter(1, order, said)

    def look(self, query: Tensor, g: Tensor) -> Tensor:
        """f of the queries [B, n, d] in view of g [B, m, d]."""
        f, state = query, None
        for _ in range(self.steps):
            seen = self.similarity(f, g).softmax(-1) @ g
            state = self.looker(torch.cat([query, seen], -1).flatten(0, 1), state)
            f = query + self.of_looker(state[0]).view_as(query)
        return f
