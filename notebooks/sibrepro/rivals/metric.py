"""Classes by the distance to their mean, or by attention to their examples, on features as they are or learned."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import class_means, unit
from sibrepro.rivals.base import Baseline, Embedding, Head, silent


class NearestCentroid(Baseline):
    """Logits fall with the distance to the class means, the head of a Prototypical Network.

    "euclidean" is -scale ||x - c||^2 / 2 and "cosine" is scale cos(x, c). They differ by the length of c alone, so
    not at all with one shot. The publication has scale = 2 on raw features; ours are unit vectors, hence a larger one,
    which changes probabilities but no answer.
    """

    title = "Nearest centroid"
    paper = "Snell et al., 2017"
    defaults: ClassVar = {"metric": "euclidean", "scale": 10.0}
    grid: ClassVar = {"metric": ("euclidean", "cosine")}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        centres = self.centres(support, support_labels)
        if self.metric == "cosine":
            return self.scale * query @ unit(centres).mT
        return self.scale * nearness(query, centres)


class Prototypical(Head):
    """-scale ||f(x) - c_j||^2 / 2 with c_j the mean of class j's f(x_i); f and scale are learned.

    Left out on frozen features: f is a small residual network on top of them rather than all layers from the pixels
    on, and training tasks have as many ways as those of the test (the publication trains with more). It starts as
    `NearestCentroid`.
    """

    title = "Prototypical Network"
    paper = "Snell et al., 2017"
    defaults: ClassVar = {"width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        return self.log_scale.exp() * nearness(query, self.centres(support, support_labels))


class TADAM(Head):
    """Task-dependent adaptive metric: nearest centroids of embed(x) = x + V relu((1 + gamma) W x + beta), scaled.

    gamma = gamma_0 g and beta = beta_0 b, where a network makes (g, b) of the task: of the mean of its prototypes
    under gamma = beta = 0. The numbers gamma_0 and beta_0 start small, so that conditioning has to prove its worth.
    Left out: conditioning is of one residual block, not of each layer of the feature network, which learns on all base
    classes at the same time.
    """

    title = "TADAM"
    paper = "Oreshkin et al., 2018"
    defaults: ClassVar = {"width": 256}

    def build(self) -> None:
        self.W, self.V = nn.Linear(self.dim, self.width), nn.Linear(self.width, self.dim)
        nn.init.normal_(self.V.weight, std=0.1 / math.sqrt(self.width))  # the embedding starts near the identity
        self.conditions = nn.Sequential(
            nn.Linear(self.dim, self.width), nn.ReLU(), nn.Linear(self.width, 2 * self.width)
        )
        self.gamma_0, self.beta_0 = (nn.Parameter(torch.tensor(0.1)) for _ in range(2))
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        prototypes, _ = class_means(self.embed(support), support_labels, self.ways)
        g, b = self.conditions(prototypes.mean(1, keepdim=True)).chunk(2, -1)  # [B, 1, width]
        gamma, beta = self.gamma_0 * g, self.beta_0 * b
        support, query = self.embed(support, gamma, beta), self.embed(query, gamma, beta)
        return self.log_scale.exp() * nearness(query, self.centres(support, support_labels))

    def embed(self, features: Tensor, gamma: Tensor | float = 0.0, beta: Tensor | float = 0.0) -> Tensor:
        return features + self.V(((1 + gamma) * self.W(features) + beta).relu())


class CTM(Head):
    """Category traversal: nearest centroids of mask * reshape(x), where the mask is a function of the support set.

    The concentrator is what the examples of a class have in common, o_j = mean_i relu(C x_i); the projector makes of
    these d softmax(P [mean_j o_j, var_j o_j]). `reshape` is linear and starts as the identity.
    Left out: convolutions, for frozen features have no places; and the projector sees the classes concatenated there,
    so that their order counts. The mask knows no query: nothing here is transductive.
    """

    title = "CTM"
    paper = "Li et al., 2019"
    defaults: ClassVar = {"width": 256}

    def build(self) -> None:
        self.concentrate, self.project = nn.Linear(self.dim, self.width), nn.Linear(2 * self.width, self.dim)
        self.reshape = nn.Parameter(torch.eye(self.dim))
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        mask = self.mask(support, support_labels)
        support, query = mask * (support @ self.reshape), mask * (query @ self.reshape)
        return self.log_scale.exp() * nearness(query, self.centres(support, support_labels))

    def mask(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """[B, 1, d], of mean 1."""
        o, _ = class_means(self.concentrate(support).relu(), support_labels, self.ways)
        across = torch.cat([o.mean(1, keepdim=True), o.var(1, keepdim=True, correction=0)], -1)
        return self.dim * self.project(across).softmax(-1)


class Relation(Head):
    """scale cos(f(x), c_j) + r(f(x), c_j), with c_j the mean of class j's f(x_i) and r an MLP over the pair.

    f, scale and r are learned, by cross-entropy over the classes of a task; the publication has squared errors of
    sigmoid(r) against 0 or 1, and sums for means. The last layer of r is zero at first, so that training starts from
    the cosine. Left out on frozen features: r sees two vectors and not two maps of them, by linear layers and not by
    convolutions, and all layers below f are not trained.
    """

    title = "Relation Network"
    paper = "Sung et al., 2018"
    defaults: ClassVar = {"width": 64}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.of_query, self.of_class = (nn.Linear(self.dim, self.width) for _ in range(2))
        self.hidden, self.score = nn.Linear(self.width, self.width), silent(nn.Linear(self.width, 1, bias=False))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        centres = unit(self.centres(support, support_labels))
        return self.log_scale.exp() * query @ centres.mT + self.relation(query, centres)

    def relation(self, query: Tensor, centres: Tensor) -> Tensor:
        """r of each of query [B, n, d] with each of centres [B, k, d], as [B, n, k]."""
        # a linear map of a pair is the sum of one of either
        pair = self.of_query(query).unsqueeze(2) + self.of_class(centres).unsqueeze(1)
        return self.score(self.hidden(pair.relu()).relu()).squeeze(-1)


class MatchingNet(Baseline):
    """Attention over the support set: p(j) = sum over examples i of class j of softmax_i(scale cos(x, x_i)).

    The publication has scale = 1 (its cosines come from an end-to-end network) and full context embeddings, left out
    here. A class with more examples gets more attention, as published.
    """

    title = "Matching Network"
    paper = "Vinyals et al., 2016"
    defaults: ClassVar = {"scale": 10.0}
    grid: ClassVar = {"scale": (1.0, 3.0, 10.0, 30.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return attention_by_class(self.scale * query @ support.mT, self.membership(support, support_labels))


class MatchingFCE(Head):
    """p(j) = sum_{i of class j} softmax_i(scale cos(f(x), g(x_i))), where f and g know the whole support set.

    g(x_i) = x_i + what a bidirectional LSTM says at x_i when it reads the support set; f(x) = x + what an LSTM says of
    x after `steps` looks at the g(x_i), each by attention from its last f(x): full context embeddings. A set has no
    order, but an LSTM reads in one: here from the most to the least typical example, nearest to the mean first (the
    publication: at random). The LSTMs have `width` units, the published ones as many as there are features, and a
    linear map that is zero at first: it starts as `MatchingNet`.
    Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "Matching Network, FCE"
    paper = "Vinyals et al., 2016"
    defaults: ClassVar = {"width": 64, "steps": 3}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.reader = nn.LSTM(self.dim, self.width, batch_first=True, bidirectional=True)
        self.of_reader = silent(nn.Linear(2 * self.width, self.dim))
        self.looker = nn.LSTMCell(2 * self.dim, self.width)
        self.of_looker = silent(nn.Linear(self.width, self.dim))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        g = self.read(self.embed(support))
        f = self.look(self.embed(query), g)
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


def nearness(query: Tensor, centres: Tensor) -> Tensor:
    """-||x - c||^2 / 2 of queries [B, n, d] and centres [B, k, d], as [B, n, k].

    But for ||x||^2, which is the same for all classes, and the softmax does not see it.
    """
    return query @ centres.mT - centres.square().sum(-1).unsqueeze(1) / 2


def attention_by_class(similarity: Tensor, of_class: Tensor) -> Tensor:
    """log sum_{i of class j} softmax_i(similarity) as [B, n, k], from similarity [B, n, m] and of_class [B, k, m]."""
    attention = similarity.log_softmax(-1).unsqueeze(2)
    return attention.masked_fill(of_class.unsqueeze(1) == 0, -math.inf).logsumexp(-1)
