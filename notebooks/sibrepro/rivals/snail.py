"""SNAIL: the task as a sequence of examples with their labels, and a query without one at its end."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import Head


class SNAIL(Head):
    """Attention, causal convolutions over time and attention again: each block adds channels to every token.

    No example sees a later one, so all queries share the states of the support set: a token for each example, and for
    each query one that stands where its own sequence would end. As published, answers depend on the order of the
    support set, and on which class has which label. The network starts close to attention to the labels of similar
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
