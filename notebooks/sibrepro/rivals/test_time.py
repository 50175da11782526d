"""What adapts a given classifier to an unlabelled minibatch at test time: the support set is its weights, one a class.

Each looks at one minibatch alone, as SIB does; those of an online kind keep nothing from one to the next.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sibcore.sib import class_means, cosine_step, cosines, unit
from sibrepro.rivals.base import Baseline


class CosineClassifier(Baseline):
    """No adaptation: logits are scaled cosines to the class means of the support set."""

    title = "cosine classifier"
    paper = "Gidaris & Komodakis, 2018"
    defaults: ClassVar = {"scale": 10.0}
    grid: ClassVar = {"scale": (10.0,)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        weights = unit(class_means(support, support_labels, self.ways)[0])
        return self.adapted(weights, query).mT

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        """Unit weights [B, k, d] and queries [B, n, d] -> logits [B, k, n]."""
        return self.logits(weights, query)

    def logits(self, weights: Tensor, query: Tensor) -> Tensor:
        return self.scale * cosines(query, weights)[0]


class EntropyMinimisation(CosineClassifier):
    """Steps down the gradient of the queries' mean entropy, here with respect to the class weights.

    With p = softmax(y), dH/dy_j = -p_j (log p_j + H).
    """

    title = "Tent, on the head"
    paper = "Wang et al., 2021"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "rate": 0.1, "steps": 10}
    grid: ClassVar = {"scale": (5.0, 10.0, 20.0), "rate": (0.01, 0.1), "steps": (1, 10)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        for _ in range(self.steps):
            cosine, norm = cosines(query, weights)
            log_p = (self.scale * cosine).log_softmax(1)
            entropy = -(log_p.exp() * log_p).sum(1, keepdim=True)
            error = -log_p.exp() * (log_p + entropy) * (self.scale / query.shape[1])
            weights = cosine_step(weights, weights, norm, query, cosine, self.rate * error)
        return self.logits(weights, query)


class ConfidentPrototypes(CosineClassifier):
    """A class's weight is the mean of the given one and of the `most` surest queries that it is predicted for (T3A)."""

    title = "T3A"
    paper = "Iwasawa & Matsuo, 2021"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "most": 5}
    grid: ClassVar = {"scale": (10.0,), "most": (1, 5, 20)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        p = self.logits(weights, query).softmax(1)
        sure = torch.where(p == p.amax(1, keepdim=True), p.amax(1, keepdim=True), 0)  # [B, k, n]
        least = sure.topk(min(self.most, query.shape[1]), -1).values[..., -1:]
        taken = ((sure >= least) & (sure > 0)).to(query)
        return self.logits(unit(weights + taken @ query), query)


class PseudoLabels(CosineClassifier):
    """Some rounds in which a class's weight moves towards the mean of all queries that it is predicted for."""

    title = "pseudo-labels"
    paper = "Lee, 2013"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "steps": 3, "trust": 0.5}
    grid: ClassVar = {"scale": (10.0,), "steps": (1, 3), "trust": (0.2, 0.5, 0.8)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        moved = weights
        for _ in range(self.steps):
            y = self.logits(moved, query)
            taken = (y == y.amax(1, keepdim=True)).to(query)
            means = unit(taken @ query)  # zero where a class is predicted for none
            moved = unit((1 - self.trust) * weights + self.trust * means)
        return self.logits(moved, query)


class PriorCorrection(CosineClassifier):
    """The class proportions of the minibatch by expectation-maximisation, in place of equal ones."""

    title = "label shift correction"
    paper = "Saerens et al., 2002"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "steps": 20}
    grid: ClassVar = {"scale": (3.0, 5.0, 10.0, 20.0), "steps": (20,)}

    def adapted(self, weights: Tensor, query: Tensor) -> Tensor:
        y = self.logits(weights, query)
        prior = y.new_full((), 1 / self.ways).expand(*y.shape[:2], 1)
        for _ in range(self.steps):
            prior = (y + prior.clamp_min(1e-6).log()).softmax(1).mean(-1, keepdim=True)
        return y + prior.clamp_min(1e-6).log()


TEST_TIME: dict[str, type[CosineClassifier]] = {
    "tent": EntropyMinimisation,
    "t3a": ConfidentPrototypes,
    "pseudo-labels": PseudoLabels,
    "label-shift": PriorCorrection,
}
