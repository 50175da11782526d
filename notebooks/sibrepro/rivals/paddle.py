"""EM with class proportions: queries choose classes, and classes that are chosen attract more queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sibrepro.rivals.base import Baseline, gram, shares, squared_distances


class PADDLE(Baseline):
    """Primal-dual minimum description length: soft k-means that pays for the complexity of its partition.

    min_u,c  scale [sum_q u_qj ||x_q - c_j||^2 + the same for the support set with its labels] + sum_q u_qj log u_qj
             - penalty n sum_j pi_j log pi_j,   pi = mean_q u_q,
    by steps that never raise it: u_q ~ pi^penalty exp(-scale ||x_q - c_j||^2), the concave last term being replaced by
    its tangent, then pi, then centres c. Classes of few queries lose them, so nothing asks for balance. penalty = 0 is
    soft k-means, penalty = 1 (as published, where it is lambda = n) is EM for a mixture with free proportions. The
    publication has scale = 1 / 2 on features stretched to [0, 1] in each dimension; unit features need more.
    """

    title = "PADDLE"
    paper = "Martin et al., 2022"
    transductive = True
    defaults: ClassVar = {"penalty": 1.0, "scale": 40.0, "steps": 100}
    grid: ClassVar = {"penalty": (0.5, 1.0), "scale": (10.0, 20.0, 40.0, 80.0)}

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        right = self.membership(support, support_labels)
        return em(gram(support, query), right, itertools.repeat((self.scale, self.penalty), self.steps)).mT


def em(products: Tensor, right: Tensor, steps: Iterable[tuple[Any, Any]]) -> Tensor:
    """Logits of u [B, k, n] after steps of (scale, penalty), for products [B, N, N] and labels right [B, k, m]."""
    m, n = right.shape[-1], products.shape[-1] - right.shape[-1]
    A, log_pi = shares(F.pad(right, (0, n))), 0.0  # equal proportions to begin with
    for scale, penalty in steps:
        logits = penalty * log_pi - scale * squared_distances(A, products)[..., m:]
        log_u = logits.log_softmax(1)
        log_pi = log_u.logsumexp(-1, keepdim=True)  # log of n pi, and n does not matter to any u
        A = shares(torch.cat([right, log_u.exp()], -1))
    return logits
