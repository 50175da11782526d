"""Dynamic few-shot learning without forgetting: attention to base classes makes the weights of new ones."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import unit
from sibrepro.rivals.base import Head, shares


class DynamicFewShot(Head):
    """A cosine classifier, w_j = phi_avg * mean_i x_i + phi_att * mean_i sum_b a_ib w_b over the examples i of class j.

    a_i = softmax_b(gamma cos(phi_q x_i, k_b)), with a key k_b and unit weights w_b for each of the base classes.
    Left out: w_b are there the weights of the network's own first classifier, here vectors learned with the rest.
    """

    title = "Dynamic few-shot"
    paper = "Gidaris & Komodakis, 2018"
    transductive = False
    defaults: ClassVar = {"bases": 64}
    grid: ClassVar = {"bases": (64,)}

    def build(self) -> None:
        self.phi_avg, self.phi_att = (nn.Parameter(torch.ones(self.dim)) for _ in range(2))
        self.phi_q = nn.Parameter(torch.eye(self.dim))
        self.keys, self.base_weights = (nn.Parameter(torch.randn(self.bases, self.dim)) for _ in range(2))
        self.log_gamma, self.log_scale = (nn.Parameter(torch.tensor(math.log(10.0))) for _ in range(2))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return self.log_scale.exp() * query @ unit(self.weights(support, support_labels)).mT

    def weights(self, support: Tensor, support_labels: Tensor) -> Tensor:
        """w [B, k, d] of unit features [B, m, d]."""
        closeness = unit(support @ self.phi_q) @ unit(self.keys).mT
        attended = (self.log_gamma.exp() * closeness).softmax(-1) @ unit(self.base_weights)  # [B, m, d]
        of_class = shares(self.membership(support, support_labels))
        return of_class @ (self.phi_avg * support + self.phi_att * attended)
