"""Methods that compare a query with the class means, or attend to the support examples.

Shapes: B tasks, k ways, m support examples, n queries, d dimensions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import Baseline, EmbeddingHead, Head, class_means, log_parameter, mean_weights, zeroed


class NearestCentroid(Baseline):
    """Nearest centroid: logits fall with the distance to the class means, as in a Prototypical Network.

    Jake Snell, Kevin Swersky and Richard S. Zemel. "Prototypical Networks for Few-Shot Learning." NeurIPS 2017.

    Logits are -scale ||x - c_j||^2 / 2 ("euclidean") or scale cos(x, c_j) ("cosine"). The two differ only by the length
    of c_j, so not at all with one shot.

    Departure: the publication has scale = 2 on raw features. Unit features need a larger scale. It changes
    probabilities, but not which class is predicted.

    Args:
        metric: "euclidean" or "cosine".
        scale: factor of the logits.
    """

    title = "Nearest centroid"
    paper = "Snell et al., 2017"
    defaults: ClassVar = {"metric": "euclidean", "scale": 10.0}
    grid: ClassVar = {"metric": ("euclidean", "cosine")}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        if self.metric == "cosine":
            return self.scale * query @ unit(mean_weights(one_hot) @ support).mT
        return self.scale * nearness(support, one_hot, query)


class Prototypical(EmbeddingHead):
    """Prototypical Network: nearest centroids on a learned embedding.

    Jake Snell, Kevin Swersky and Richard S. Zemel. "Prototypical Networks for Few-Shot Learning." NeurIPS 2017.

    Logits are -scale ||f(x) - c_j||^2 / 2, where c_j is the mean of f(x_i) over the examples of class j. The embedding
    f and the scale are learned. Training starts from `NearestCentroid`.

    Departures: f is a small residual layer on frozen features instead of a whole network. Training tasks have as many
    ways as test tasks, whereas the publication trains with more.

    Args:
        width: hidden units of the embedding.
    """

    title = "Prototypical Network"
    paper = "Snell et al., 2017"

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return self.log_scale.exp() * nearness(support, one_hot, query)


class TADAM(Head):
    """TADAM: nearest centroids on an embedding that is conditioned on the task.

    Boris N. Oreshkin, Pau Rodríguez López and Alexandre Lacoste. "TADAM: Task Dependent Adaptive Metric for Improved
    Few-Shot Learning." NeurIPS 2018.

    The embedding is x + V relu((1 + gamma) W x + beta), with gamma = gamma_0 g and beta = beta_0 b. A network computes
    (g, b) from the mean of the prototypes that gamma = beta = 0 gives. The numbers gamma_0 and beta_0 start small, so
    training conditions on the task only as far as this helps.

    Departures: one residual layer is conditioned, not each layer of a backbone. There is no auxiliary training on all
    base classes.

    Args:
        width: hidden units of the embedding and of the conditioning network.
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
        self.gamma_0 = nn.Parameter(torch.tensor(0.1))
        self.beta_0 = nn.Parameter(torch.tensor(0.1))
        self.log_scale = log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        prototypes = class_means(self.embed(support), one_hot)
        g, b = self.conditions(prototypes.mean(1, keepdim=True)).chunk(2, -1)  # [B, 1, width]
        gamma, beta = self.gamma_0 * g, self.beta_0 * b
        support, query = self.embed(support, gamma, beta), self.embed(query, gamma, beta)
        return self.log_scale.exp() * nearness(support, one_hot, query)

    def embed(self, features: Tensor, gamma: Tensor | float = 0.0, beta: Tensor | float = 0.0) -> Tensor:
        """Return the conditioned embedding of features `[B, n, d]`, in the same shape."""
        return features + self.V(((1 + gamma) * self.W(features) + beta).relu())


class CTM(Head):
    """CTM: nearest centroids on features that are masked as a function of the whole support set.

    Hongyang Li, David Eigen, Samuel Dodge, Matthew Zeiler and Xiaogang Wang. "Finding Task-Relevant Features for
    Few-Shot Learning by Category Traversal." CVPR 2019.

    A feature x becomes mask * reshape(x). The concentrator finds what the examples of a class have in common, o_j =
    mean_i relu(C x_i). From these the projector computes the mask, d softmax(P [mean_j o_j, var_j o_j]). `reshape` is
    linear and starts as the identity. The mask does not depend on queries, so the method is inductive.

    Departures: linear layers take the place of convolutions, because frozen features have no spatial dimensions. The
    published projector concatenates the classes, so that their order counts.

    Args:
        width: hidden units of the concentrator.
    """

    title = "CTM"
    paper = "Li et al., 2019"
    defaults: ClassVar = {"width": 256}

    def build(self) -> None:
        self.concentrate, self.project = nn.Linear(self.dim, self.width), nn.Linear(2 * self.width, self.dim)
        self.reshape = nn.Parameter(torch.eye(self.dim))
        self.log_scale = log_parameter(10.0)

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        mask = self.mask(support, one_hot)
        support, query = mask * (support @ self.reshape), mask * (query @ self.reshape)
        return self.log_scale.exp() * nearness(support, one_hot, query)

    def mask(self, support: Tensor, one_hot: Tensor) -> Tensor:
        """Return the mask of each task, `[B, 1, d]`, whose mean is 1."""
        o = class_means(self.concentrate(support).relu(), one_hot)
        across = torch.cat([o.mean(1, keepdim=True), o.var(1, keepdim=True, correction=0)], -1)
        return self.dim * self.project(across).softmax(-1)


class Relation(EmbeddingHead):
    """Relation Network: a learned function compares a query with the mean of each class.

    Flood Sung, Yongxin Yang, Li Zhang, Tao Xiang, Philip H. S. Torr and Timothy M. Hospedales. "Learning to Compare:
    Relation Network for Few-Shot Learning." CVPR 2018.

    Logits are scale cos(f(x), c_j) + r(f(x), c_j), where c_j is the mean of f(x_i) over class j and r is an MLP over
    the pair. The embedding f, the scale and r are learned. The last layer of r starts at zero, so training starts from
    the cosine.

    Departures: the loss is the cross-entropy over the classes, whereas the publication has squared errors of sigmoid(r)
    against 0 or 1. It also sums the examples of a class instead of averaging them. On frozen features r compares
    vectors by linear layers, not feature maps by convolutions, and the layers below f are not trained.

    Args:
        width: hidden units of the embedding and of r.
    """

    title = "Relation Network"
    paper = "Sung et al., 2018"

    def build(self) -> None:
        super().build()
        self.of_query = nn.Linear(self.dim, self.width)
        self.of_class = nn.Linear(self.dim, self.width)
        self.hidden, self.score = nn.Linear(self.width, self.width), zeroed(nn.Linear(self.width, 1, bias=False))

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        centres = unit(mean_weights(one_hot) @ support)
        return self.log_scale.exp() * query @ centres.mT + self.relation(query, centres)

    def relation(self, query: Tensor, centres: Tensor) -> Tensor:
        """Return r `[B, n, k]` of each query `[B, n, d]` with each centre `[B, k, d]`."""
        # a linear map of a pair is the sum of a linear map of each member
        pair = self.of_query(query).unsqueeze(2) + self.of_class(centres).unsqueeze(1)
        return self.score(self.hidden(pair.relu()).relu()).squeeze(-1)


class MatchingNet(Baseline):
    """Matching Network: a query gets the labels of the support examples that it attends to.

    Oriol Vinyals, Charles Blundell, Timothy Lillicrap, Koray Kavukcuoglu and Daan Wierstra. "Matching Networks for One
    Shot Learning." NeurIPS 2016.

    p(j) is the sum of softmax_i(scale cos(x, x_i)) over the examples i of class j. As published, a class with more
    examples gets more attention.

    Departures: the publication has scale = 1 with a network trained for it. Its full context embeddings are left out
    here (see `MatchingFCE`).

    Args:
        scale: inverse temperature of the attention.
    """

    title = "Matching Network"
    paper = "Vinyals et al., 2016"
    defaults: ClassVar = {"scale": 10.0}
    grid: ClassVar = {"scale": (1.0, 3.0, 10.0, 30.0)}

    def logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        return attention_by_class(self.scale * query @ support.mT, one_hot)


class MatchingFCE(EmbeddingHead):
    """Matching Network with full context embeddings: LSTMs embed each example in the context of the support set.

    Oriol Vinyals, Charles Blundell, Timothy Lillicrap, Koray Kavukcuoglu and Daan Wierstra. "Matching Networks for One
    Shot Learning." NeurIPS 2016.

    p(j) is the sum of softmax_i(scale cos(f(x), g(x_i))) over the examples i of class j. g(x_i) is x_i plus the output
    of a bidirectional LSTM that reads the support set. f(x) is x plus the output of an LSTM that attends to the g(x_i)
    `steps` times, each time starting from its last f(x). The linear maps of both outputs start at zero, so training
    starts from `MatchingNet`.

    Departures: the LSTM reads the support set from the most to the least typical example (nearest to the mean first),
    so that its order makes no difference. The publication reads it in random order, and its LSTMs have as many units
    as features. The layers below the embedding are frozen.

    Args:
        width: hidden units of the embedding and of the LSTMs.
        steps: times that a query attends to the support set.
    """

    title = "Matching Network, FCE"
    paper = "Vinyals et al., 2016"
    defaults: ClassVar = {"width": 64, "steps": 3}

    def build(self) -> None:
        super().build()
        self.reader = nn.LSTM(self.dim, self.width, batch_first=True, bidirectional=True)
        self.of_reader = zeroed(nn.Linear(2 * self.width, self.dim))
        self.looker = nn.LSTMCell(2 * self.dim, self.width)
        self.of_looker = zeroed(nn.Linear(self.width, self.dim))

    def embedded_logits(self, support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
        g = self.read(support)
        f = self.attend(query, g)
        return attention_by_class(self.similarity(f, g), one_hot)

    def similarity(self, f: Tensor, g: Tensor) -> Tensor:
        """Return scale cos(f, g) of all pairs of f `[B, n, d]` and g `[B, m, d]`, `[B, n, m]`."""
        return self.log_scale.exp() * unit(f) @ unit(g).mT

    def read(self, support: Tensor) -> Tensor:
        """Return the context embeddings g of the support examples, `[B, m, d]`."""
        typicality = support @ support.mean(1).unsqueeze(-1)
        order = typicality.argsort(1, descending=True).expand_as(support)
        output = self.of_reader(self.reader(support.gather(1, order))[0])
        return support + torch.zeros_like(output).scatter(1, order, output)

    def attend(self, query: Tensor, g: Tensor) -> Tensor:
        """Return the context embeddings f `[B, n, d]` of the queries, given g `[B, m, d]` of the support set."""
        f, state = query, None
        for _ in range(self.steps):
            seen = self.similarity(f, g).softmax(-1) @ g
            state = self.looker(torch.cat([query, seen], -1).flatten(0, 1), state)
            f = query + self.of_looker(state[0]).view_as(query)
        return f


def nearness(support: Tensor, one_hot: Tensor, query: Tensor) -> Tensor:
    """Return -||x - c_j||^2 / 2 of queries and class means, `[B, n, k]`.

    The term ||x||^2 is left out: it is the same for all classes, so the softmax removes it.

    Args:
        support: support features, `[B, m, d]`.
        one_hot: their labels, `[B, k, m]`.
        query: query features, `[B, n, d]`.
    """
    centres = mean_weights(one_hot) @ support
    return query @ centres.mT - centres.square().sum(-1).unsqueeze(1) / 2


def attention_by_class(similarity: Tensor, one_hot: Tensor) -> Tensor:
    """Sum the attention of each query over the examples of each class.

    Args:
        similarity: similarities of queries and support examples, `[B, n, m]`.
        one_hot: labels of the support set, `[B, k, m]`.

    Returns:
        The logarithms of the class probabilities, `[B, n, k]`.
    """
    attention = similarity.log_softmax(-1).unsqueeze(2)
    return attention.masked_fill(one_hot.unsqueeze(1) == 0, -math.inf).logsumexp(-1)
