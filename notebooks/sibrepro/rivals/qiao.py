"""Predicting parameters from activations: one network turns a class's mean feature into its weights."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibcore.sib import class_means, unit
from sibrepro.rivals.base import Head


class PredictedParameters(Head):
    """A linear classifier whose weights are w_j = phi(unit mean of class j), with the same phi for all classes.

    phi has 1 layer, or 2 with a ReLU between, and no bias, which would be the same for all logits. It starts as the
    identity (with 2 layers, on features that are not negative): the nearest centroid by cosine.
    Left out: phi learns there on all base classes at once, from means of random subsets of a class; here on tasks.
    """

    title = "Predicted parameters"
    paper = "Qiao et al., 2018"
    transductive = False
    defaults: ClassVar = {"layers": 1}
    grid: ClassVar = {"layers": (1, 2)}

    def build(self) -> None:
        layers = [nn.Linear(self.dim, self.dim, bias=False) for _ in range(self.layers)]
        for layer in layers:
            nn.init.eye_(layer.weight)
        self.phi = nn.Sequential(layers[0], *(part for layer in layers[1:] for part in (nn.ReLU(), layer)))
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        w = self.phi(unit(class_means(support, support_labels, self.ways)[0]))
        return self.log_scale.exp() * query @ w.mT
