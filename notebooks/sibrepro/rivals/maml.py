"""MAML: gradient steps on the support set from a start that was learned for them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import cosine_step, cosines
from sibrepro.rivals.base import Head
from sibrepro.rivals.embedding import Embedding


class MAML(Head):
    """theta_j <- theta_j - rate_s grad_j of the mean cross-entropy of softmax(scale cos(x, theta)) on the support set.

    The start, one vector for all classes (their order means nothing), the rate of every step, the scale and an
    embedding are learned, through all steps: the gradient is written in closed form, so that training differentiates
    it once more (second order). Left out on frozen features: the steps change the classifier alone, as in ANIL (Raghu
    et al., 2020), where the publication takes them in all layers of a network; its rate is one constant.
    """

    title = "MAML"
    paper = "Finn et al., 2017"
    transductive = False
    defaults: ClassVar = {"steps": 5, "width": 64}
    grid: ClassVar = {"steps": (1, 5), "width": (64, 256)}

    def build(self) -> None:
        self.embed = Embedding(self.dim, self.width)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.start = nn.Parameter(torch.full((self.dim,), self.dim**-0.5))
        self.log_rates = nn.Parameter(torch.ones(self.steps).log())

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        support, query, scale = self.embed(support), self.embed(query), self.log_scale.exp()
        right = self.membership(support, support_labels)
        theta = self.start.expand(len(query), self.ways, -1)
        for rate in self.log_rates.exp():
            cosine, norm = cosines(support, theta)
            error = scale * ((scale * cosine).softmax(1) - right) / support.shape[1]
            theta = cosine_step(theta, theta, norm, support, cosine, rate * error)
        return scale * cosines(query, theta)[0].mT
