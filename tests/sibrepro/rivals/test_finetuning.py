from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks
from sklearn.linear_model import LogisticRegression as SklearnLogistic

from sibrepro.rivals import LogisticRegression, TransductiveFineTuning
from sibrepro.rivals.base import gram


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_logistic_regression_agrees_with_scikit_learn(C):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5], spread=1.0)
    got = LogisticRegression(4, C=C, tolerance=1e-9).answer(support, labels, query).softmax(-1)
    for b in range(len(query)):
        oracle = SklearnLogistic(C=C, fit_intercept=False, tol=1e-10, max_iter=10**5)
        oracle.fit(support[b].numpy(), labels[b].numpy())
        np.testing.assert_allclose(got[b].numpy(), oracle.predict_proba(query[b].numpy()), atol=1e-5)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0, 100.0])
def test_the_default_tolerance_leaves_almost_no_gradient(C):
    support, labels, _, _ = tasks(batch=20, ways=5, shots=5, spread=1.5)
    W = (LogisticRegression(5, C=C).coefficients(support, F.one_hot(labels, 5).mT.double()) @ support).requires_grad_()

    def gradient(W):
        loss = W.square().sum() / 2 + C * F.cross_entropy((support @ W.mT).mT, labels, reduction="sum")
        return torch.autograd.grad(loss, W)[0].norm(dim=(1, 2))

    assert (gradient(W) < 2e-3 * gradient(torch.zeros_like(W).requires_grad_())).all()


def loss(w: torch.Tensor, support, labels, query, method: TransductiveFineTuning) -> torch.Tensor:
    """The transductive fine-tuning loss summed over tasks, in plain words."""
    logits = [method.scale * F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).mT for x in (support, query)]
    entropy = torch.distributions.Categorical(logits=logits[1]).entropy().mean(1)
    return (F.cross_entropy(logits[0].mT, labels, reduction="none").mean(1) + method.entropy * entropy).sum()


def test_the_closed_form_gradient_of_fine_tuning_is_that_of_autograd():
    support, labels, query, _ = tasks()
    method = TransductiveFineTuning(4, entropy=0.7, scale=8.0)
    points = torch.cat([support, query], 1)
    A = torch.rand(3, 4, points.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = (A @ points).requires_grad_()
    wanted = torch.autograd.grad(loss(w, support, labels, query, method), w)[0]
    right = F.one_hot(labels, 4).mT.double()
    got = method.gradient(A, gram(support, query), right) @ points
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-9)


def test_fine_tuning_is_gradient_descent_from_the_class_means():
    support, labels, query, _ = tasks()
    method = TransductiveFineTuning(4, lr=0.02, steps=7, scale=10.0)
    w = torch.stack([torch.stack([support[b][labels[b] == j].mean(0) for j in range(4)]) for b in range(3)])
    for _ in range(method.steps):
        w = w.detach().requires_grad_()
        w = w - method.lr * torch.autograd.grad(loss(w, support, labels, query, method), w)[0]
    wanted = 10 * F.normalize(query, dim=-1) @ F.normalize(w, dim=-1).mT
    torch.testing.assert_close(method.answer(support, labels, query), wanted.detach(), atol=1e-10, rtol=0)
