"""A graph between a task's points and its prototypes, drawn anew as prototypes move."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sibcore.baselines.base import shares, squared_distances
from sibcore.baselines.clustering import OptimalTransportMAP


class ProtoLP(OptimalTransportMAP):
    """PT-MAP whose assignments are smoothed by label propagation over an anchor graph before they move prototypes.

    Points are powered as in PT-MAP, and all centred on one mean. Z [N, k] are the labels of the support and, for the
    queries, either PT-MAP's transport plan (`balanced`) or softmax(-strength ||x - c_j||^2), which assumes nothing of
    their numbers. W = Z D^-1 Z^T with D = diag(sum_i Z_i) joins points that share prototypes; prototypes get labels
        Y = argmin ||Z_S Y - Y_S||^2 + smoothing tr (Z Y)^T (I - W) (Z Y),
    a k x k system, and c_j moves by the fraction `alpha` towards the mean with weights beta Z Y + (1 - beta) Z. As
    published, but for the 40 principal components that features are first reduced to there.
    """

    title = "protoLP"
    paper = "Zhu and Koniusz, 2023"
    defaults: ClassVar = OptimalTransportMAP.defaults | {"smoothing": 1.0, "beta": 0.6, "balanced": False, "steps": 50}
    grid: ClassVar = {"balanced": (False, True), "strength": (10.0, 20.0), "smoothing": (0.1, 1.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        m, n = support.shape[1], query.shape[1]
        right = self.membership(support, support_labels)
        points = self.transform(torch.cat([support, query], 1))
        products = points @ points.mT
        A = shares(F.pad(right, (0, n)))
        prices = torch.ones_like(right[..., :1])
        for _ in range(self.steps):
            log_plan, prices = self.plan(squared_distances(A, products)[..., m:], prices)
            Z = torch.cat([right, log_plan.exp()], -1)
            weights = self.beta * self.propagate(Z, right) + (1 - self.beta) * Z
            A = A + self.alpha * (shares(weights) - A)
        return self.plan(squared_distances(A, products)[..., m:], prices)[0].mT

    def plan(self, cost: Tensor, prices: Tensor) -> tuple[Tensor, Tensor]:
        if self.balanced:
            return super().plan(cost, prices)
        return (-self.strength * cost).log_softmax(1), prices

    def propagate(self, Z: Tensor, right: Tensor) -> Tensor:
        """The labels Z Y of all points, within [0, 1]: Z [B, k, N], right [B, k, m] -> [B, k, N]."""
        overlap = Z @ Z.mT
        roughness = overlap - overlap / Z.sum(-1).unsqueeze(1) @ overlap
        counts = torch.diag_embed(right.sum(-1))  # Z_S^T Z_S, and Z_S^T Y_S too
        Y = torch.linalg.solve(counts + self.smoothing * roughness, counts)
        return (Y.mT @ Z).clamp(0, 1)
