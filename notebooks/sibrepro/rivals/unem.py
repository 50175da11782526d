"""Generalised EM whose hyper-parameters are learned, layer by layer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibrepro.rivals.base import Head, gram
from sibrepro.rivals.paddle import em


class UNEM(Head):
    """Unrolled generalised EM with spheres for classes (UNEM-Gaussian): PADDLE with an entropy's weight, learned.

    Layer l of `layers` has u_q ~ exp([penalty_l log pi - scale ||x_q - c_j||^2] / T_l), then pi and the centres as in
    PADDLE; penalty_l > 0 for the balance of classes, T_l > 1 for the softness of answers and one scale > 0 are all that
    is learned, 2 `layers` + 1 numbers. As published: softplus keeps them positive, ten layers, Adam with rate 0.1.
    Departures: the scale's logarithm is learned, because unit features need a large one, and the loss is the
    cross-entropy of u (the authors' code takes u itself for logits). `scale` and `penalty` are where learning starts.
    """

    title = "UNEM"
    paper = "Zhou et al., 2025"
    transductive = True
    defaults: ClassVar = {"layers": 10, "scale": 20.0, "penalty": 1.0}
    grid: ClassVar = {}

    def build(self) -> None:
        self.log_scale = nn.Parameter(torch.tensor(math.log(self.scale)))
        self.raw_penalty = nn.Parameter(torch.full((self.layers,), math.log(math.expm1(self.penalty))))
        self.raw_softness = nn.Parameter(torch.full((self.layers,), -2.0))  # T = 1.13: near plain EM

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        return em(gram(support, query), right, zip(*self.steps(), strict=True)).mT

    def steps(self) -> tuple[Tensor, Tensor]:
        """Each layer's factors of distances and of log pi, [layers] both."""
        T = 1 + F.softplus(self.raw_softness)
        return self.log_scale.exp() / T, F.softplus(self.raw_penalty) / T
