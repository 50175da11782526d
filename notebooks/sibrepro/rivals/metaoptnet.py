"""MetaOptNet: a support vector machine, on an embedding that is learned through it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Head
from sibrepro.rivals.embedding import Embedding
from sibrepro.rivals.inductive import project_on_simplex


class MetaOptNet(Head):
    """Logits scale W f(x), with W Crammer and Singer's machine on the support set (`SVM`); f, C and scale are learned.

    Its dual, min over A of tr(A^T K A) / 2 - tr(A^T Y) with p_i = C y_i - a_i >= 0 and sum p_i = C, is solved by
    `iterations` of the accelerated projected gradient, through which training differentiates (the publication: an
    interior-point solver, differentiated implicitly, and a constant C); on unit features with C = 1 they leave a
    relative duality gap below 3 %. Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "MetaOptNet-SVM"
    paper = "Lee et al., 2019"
    transductive = False
    defaults: ClassVar = {"iterations": 30, "width": 64}
    grid: ClassVar = {"width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_C = nn.Parameter(torch.tensor(1.0).log())
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query = self.embed(support), self.embed(query)
        A = self.coefficients(support @ support.mT, self.membership(support, support_labels).mT)
        return self.log_scale.exp() * (query @ support.mT @ A)

    def coefficients(self, products: Tensor, right: Tensor) -> Tensor:
        """A [B, m, k] with w_j = sum_i A_ij f(x_i), for products [B, m, m] and right [B, m, k], the labels' one-hot."""
        most = self.log_C.exp() * right
        curvature = products.abs().sum(-1).amax(-1)[:, None, None]  # no eigenvalue is above the largest sum of a row
        p = ahead = most
        for t in range(self.iterations):
            downhill = (products @ (most - ahead) - right) / curvature
            previous, p = p, project_on_simplex(ahead + downhill, self.log_C.exp())
            ahead = p + t / (t + 3) * (p - previous)
        return most - p
