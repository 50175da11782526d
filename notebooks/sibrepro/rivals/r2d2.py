"""R2-D2: ridge regression in closed form, on an embedding that is learned through it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Head
from sibrepro.rivals.embedding import Embedding
from sibrepro.rivals.inductive import ridge


class R2D2(Head):
    """Logits scale (W f(x) + b), with W and b the ridge regression of the support set onto 0 or 1 (`RidgeRegression`).

    f, the penalty and the scale are learned, through the solution of an m x m system. The published bias, the same for
    all classes, changes no probability. Left out on frozen features: all layers below the embedding are not trained.
    """

    title = "R2-D2"
    paper = "Bertinetto et al., 2019"
    transductive = False
    defaults: ClassVar = {"width": 64}
    grid: ClassVar = {"width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_penalty = nn.Parameter(torch.tensor(1.0).log())
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        targets = self.membership(support, support_labels).mT
        fitted = ridge(self.embed(support), targets, self.embed(query), self.log_penalty.exp())
        return self.log_scale.exp() * fitted
