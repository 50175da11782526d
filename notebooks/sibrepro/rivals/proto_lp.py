"""A graph between a task's points and its prototypes, drawn anew as prototypes move."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sibcore.sib import unit
from sibrepro.rivals.base import Baseline, shares, squared_distances


class ProtoLP(Baseline):
    """Soft k-means whose assignments are smoothed by label propagation before they move the prototypes.

    Points are centred on their mean and scaled to length 1 again. Z [N, k] are the labels of the support, and
    softmax(-scale ||x_q - c_j||^2) for queries. W = Z D^-1 Z^T with D = diag(sum_i Z_i) joins points that share
    prototypes, and these get labels
        Y = argmin ||Z_S Y - Y_S||^2 + smoothing tr (Z Y)^T (I - W) (Z Y),
    a k x k system; c_j moves by the fraction `alpha` towards the mean with weights beta Z Y + (1 - beta) Z. Published
    also with a transport plan for Z, where queries are known to be balanced, and then with a power transform. Left out
    of the authors' code: features reduced to 40 principal components, and first prototypes of length 1.
    """

    title = "protoLP"
    paper = "Zhu and Koniusz, 2023"
    transductive = True
    defaults: ClassVar = {"scale": 10.0, "smoothing": 0.05, "alpha": 0.2, "beta": 0.7, "steps": 50}
    grid: ClassVar = {"scale": (5.0, 10.0, 20.0), "smoothing": (0.05, 1.0, 10.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        right = self.membership(support, support_labels)
        points = torch.cat([support, query], 1)
        points = unit(points - points.mean(1, keepdim=True))
        products = points @ points.mT
        A = shares(F.pad(right, (0, n)))
        for _ in range(self.steps):
            Z = torch.cat([right, self.logits(A, products)[..., m:].softmax(1)], -1)
            weights = self.beta * self.propagate(Z, right) + (1 - self.beta) * Z
            A = A + self.alpha * (shares(weights) - A)
        return self.logits(A, products)[..., m:].mT

    def logits(self, A: Tensor, products: Tensor) -> Tensor:
        return -self.scale * squared_distances(A, products)

    def propagate(self, Z: Tensor, right: Tensor) -> Tensor:
        """The labels Z Y of all points, within [0, 1]: Z [B, k, N], right [B, k, m] -> [B, k, N]."""
        overlap = Z @ Z.mT
        roughness = overlap - overlap / Z.sum(-1).unsqueeze(1) @ overlap
        counts = torch.diag_embed(right.sum(-1))  # Z_S^T Z_S, and Z_S^T Y_S too
        Y = torch.linalg.solve(counts + self.smoothing * roughness, counts)
        return (Y.mT @ Z).clamp(0, 1)
