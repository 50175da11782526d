"""Latent embedding optimisation: gradient steps on a short code of the classifier instead of its weights."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sibrepro.rivals.base import Head, shares


class LEO(Head):
    """w_j = decode(z_j): z_j comes from the support set, and follows the gradient of its cross-entropy; then w_j does.

    z_j is the mean over examples i of class j and i' of all classes of relation(encode x_i, encode x_i'). Encoder and
    decoder are linear, as published, so the steps have a closed form and autograd alone gives the second order. Step
    sizes alpha (of codes) and beta (of weights) are learned.
    Left out: codes and weights are their means, not drawn from Gaussians, and so the penalties and dropout go.
    """

    title = "LEO"
    paper = "Rusu et al., 2019"
    transductive = False
    defaults: ClassVar = {"code": 64, "steps": 5, "weight_steps": 5}
    grid: ClassVar = {"code": (64,)}

    def build(self) -> None:
        code, wide = self.code, 2 * self.code
        self.encode, self.decode = nn.Linear(self.dim, code, bias=False), nn.Linear(code, self.dim, bias=False)
        nn.init.orthogonal_(self.decode.weight)
        hidden = [nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()]
        self.relation = nn.Sequential(*hidden, nn.Linear(wide, code, bias=False))
        nn.init.normal_(self.relation[-1].weight, std=0.01)  # from codes near 0 the first step is to the class means
        self.log_alpha, self.log_beta = (nn.Parameter(torch.tensor(math.log(size))) for size in (0.03, 0.3))
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        z = self.codes(support, right)
        for _ in range(self.steps):
            z = z - self.log_alpha.exp() * self.gradient(self.decode(z), support, right) @ self.decode.weight
        w = self.decode(z)
        for _ in range(self.weight_steps):
            w = w - self.log_beta.exp() * self.gradient(w, support, right)
        return self.classify(query, w)

    def codes(self, support: Tensor, right: Tensor) -> Tensor:
        """z [B, k, code] before the steps, of features [B, m, d] whose classes are right [B, k, m]."""
        own = self.encode(support)
        pairs = torch.cat(torch.broadcast_tensors(own.unsqueeze(2), own.unsqueeze(1)), -1)  # [B, m, m, 2 code]
        return shares(right) @ self.relation(pairs).mean(2)

    def gradient(self, w: Tensor, support: Tensor, right: Tensor) -> Tensor:
        """d/dw [B, k, d] of the mean cross-entropy of the support set."""
        error = self.classify(support, w).softmax(-1).mT - right
        return self.log_scale.exp() / support.shape[1] * error @ support

    def classify(self, features: Tensor, w: Tensor) -> Tensor:
        return self.log_scale.exp() * features @ w.mT
