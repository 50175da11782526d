from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks

from sibrepro.rivals import AlphaTIM
from sibrepro.rivals.base import gram


def entropy(p: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.special.entr(p).sum(-1) if alpha == 1 else (1 - (p**alpha).sum(-1)) / (alpha - 1)


def objective(w, support, labels, query, method):
    """Of the publication, word by word, for each task: w [B, k, d] -> [B]."""
    log_p = [(-method.temperature / 2 * torch.cdist(x, w).square()).log_softmax(-1) for x in (support, query)]
    p = log_p[1].exp()
    ce = F.nll_loss(log_p[0].mT, labels, reduction="none").mean(1)
    return ce - entropy(p.mean(1), method.alpha) + entropy(p, method.alpha).mean(1)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 7.0])
def test_the_gradient_of_alpha_tim_is_autograds_with_shannons_entropy_for_alpha_1(alpha):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=[4, 0, 9, 1])
    method = AlphaTIM(4, alpha=alpha, temperature=6.0)
    points, right = torch.cat([support, query], 1), F.one_hot(labels, 4).mT.double()
    A = torch.rand(3, 4, points.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 20
    w = (A @ points).requires_grad_()
    (wanted,) = torch.autograd.grad(objective(w, support, labels, query, method).sum(), w)
    torch.testing.assert_close(method.gradient(A, gram(support, query), right) @ points, wanted)


def test_alpha_near_1_is_nearly_shannons():
    support, labels, query, _ = tasks()
    near, shannon = (AlphaTIM(4, alpha=alpha).answer(support, labels, query) for alpha in (1 + 1e-7, 1.0))
    torch.testing.assert_close(near, shannon, atol=1e-4, rtol=0)


def test_alpha_tim_descends_from_the_class_means():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=[4, 0, 9, 1])
    method = AlphaTIM(4, alpha=3.0, lr=2.0, steps=6)
    right = F.one_hot(labels, 4).double()
    w, values = (right.mT @ support) / right.sum(1).unsqueeze(-1), []
    for _ in range(6):
        w.requires_grad_()
        values.append(objective(w, support, labels, query, method))
        (gradient,) = torch.autograd.grad(values[-1].sum(), w)
        w = (w - 2 / method.temperature * gradient).detach()
    wanted = -method.temperature / 2 * torch.cdist(query, w).square()
    torch.testing.assert_close(method.answer(support, labels, query), wanted)
    assert (torch.stack(values).diff(dim=0) < 0).all()


def test_a_larger_alpha_lets_a_class_have_more_queries():
    support, labels, query, _ = tasks(batch=40, shots=1, queries=[20, 2, 1, 1], spread=1.0, dim=32)

    def share(alpha):
        p = AlphaTIM(4, alpha=alpha, steps=300).answer(support, labels, query).softmax(-1)
        return p.mean((0, 1))[0]

    assert share(1.0) + 0.02 < share(2.0) < share(5.0) < 20 / 24
