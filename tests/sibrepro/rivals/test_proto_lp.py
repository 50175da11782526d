from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks

from sibrepro.rivals import ProtoLP, SoftKMeans


def assignments(n: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Z [B, k, N] with labels first, and these, [B, k, m]."""
    right = F.one_hot(torch.tensor([0, 1, 1, 2, 3, 3]), 4).mT.double().expand(3, -1, -1)
    logits = 2 * torch.randn(3, 4, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.cat([right, logits.softmax(1)], -1), right


def test_propagated_labels_minimise_what_they_should():
    """Least squares by autograd, on the graph of all points."""
    Z, right = assignments()
    m, smoothing = right.shape[-1], 0.3
    Y = torch.zeros(3, 4, 4, dtype=torch.float64, requires_grad=True)  # [prototype, label]
    W = Z.mT @ torch.diag_embed(1 / Z.sum(-1)) @ Z
    torch.testing.assert_close(W.sum(-1), torch.ones(3, Z.shape[-1], dtype=torch.float64))

    def objective(Y):
        labels = Z.mT @ Y
        rough = (labels * (labels - W @ labels)).sum((1, 2))
        return ((labels[:, :m] - right.mT).square().sum((1, 2)) + smoothing * rough).sum()

    hessian = torch.autograd.functional.hessian(objective, Y).reshape(48, 48)
    (gradient,) = torch.autograd.grad(objective(Y), Y)
    best = torch.linalg.solve(hessian, -gradient.flatten()).view(3, 4, 4)  # the objective is quadratic
    wanted = (Z.mT @ best).clamp(0, 1).mT
    torch.testing.assert_close(ProtoLP(4, smoothing=smoothing).propagate(Z, right), wanted)


def test_labels_that_are_certain_stay_as_they_are():
    right = assignments()[1]
    Z = torch.cat([right, right.roll(2, -1)], -1)
    torch.testing.assert_close(ProtoLP(4, smoothing=5.0).propagate(Z, right), Z)


def test_without_smoothing_it_is_soft_k_means_on_centred_points():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=[4, 0, 9, 1], spread=1.0)
    got = ProtoLP(4, scale=3.0, smoothing=1e-13, alpha=1.0, steps=6).answer(support, labels, query)
    m, points = support.shape[1], torch.cat([support, query], 1)
    points = F.normalize(points - points.mean(1, keepdim=True), dim=-1)
    wanted = SoftKMeans(4, scale=3.0, steps=6).answer(points[:, :m], labels, points[:, m:])
    torch.testing.assert_close(got, wanted)


def test_proto_lp_agrees_with_a_loop_over_tasks():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], spread=1.0)
    got = ProtoLP(4, scale=3.0, smoothing=0.5, beta=0.7, steps=4).answer(support, labels, query).softmax(-1)
    for b in range(len(query)):
        x, m = np.concatenate([support[b].numpy(), query[b].numpy()]), support.shape[1]
        x = x - x.mean(0)
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        right = np.eye(4)[labels[b].numpy()]
        c = right.T @ x[:m] / right.sum(0)[:, None]
        for step in range(5):
            u = np.exp(-3 * ((x[m:, None] - c) ** 2).sum(-1))
            Z = np.concatenate([right, u / u.sum(1, keepdims=True)])
            L = Z.T @ (np.eye(len(x)) - Z / Z.sum(0) @ Z.T) @ Z
            P = (Z @ np.linalg.solve(Z[:m].T @ Z[:m] + 0.5 * L, Z[:m].T @ right)).clip(0, 1)
            weights = 0.7 * P + 0.3 * Z
            if step < 4:
                c = c + 0.2 * (weights.T @ x / weights.sum(0)[:, None] - c)
        np.testing.assert_allclose(got[b].numpy(), Z[m:], atol=1e-10)
