from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks
from hypothesis import given
from hypothesis import strategies as st

from sibrepro.rivals import TIM, OptimalTransportMAP, SoftKMeans
from sibrepro.rivals.base import gram, squared_distances


def class_means(support, labels, ways=4):
    return torch.stack(
        [torch.stack([s[y == j].mean(0) for j in range(ways)]) for s, y in zip(support, labels, strict=True)]
    )


def test_distances_from_inner_products_are_those_of_the_points():
    support, _, query, _ = tasks()
    points = torch.cat([support, query], 1)
    A = torch.randn(3, 4, points.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.cdist(A @ points, points).square()
    torch.testing.assert_close(squared_distances(A, gram(support, query)), wanted)


def soft_k_means(support, labels, query, scale, steps):
    """Centres [B, k, d] after each step, starting with the class means."""
    centres = [class_means(support, labels)]
    right = F.one_hot(labels, 4).double()
    for _ in range(steps):
        z = (-scale * torch.cdist(query, centres[-1]).square()).softmax(-1)
        weights = torch.cat([right, z], 1)
        centres.append(weights.mT @ torch.cat([support, query], 1) / weights.sum(1).unsqueeze(-1))
    return centres


def test_soft_k_means_moves_the_centres_to_weighted_means():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1])
    centre = soft_k_means(support, labels, query, 6.0, 4)[-1]
    wanted = -6 * torch.cdist(query, centre).square()
    torch.testing.assert_close(SoftKMeans(4, scale=6.0, steps=4).answer(support, labels, query), wanted)


@given(st.integers(0, 10**6), st.floats(0.5, 30))
def test_soft_k_means_never_lowers_the_likelihood_of_its_mixture(seed, scale):
    support, labels, query, _ = tasks(seed=seed, spread=1.5)
    points, right = torch.cat([support, query], 1), F.one_hot(labels, 4).mT.double()

    def likelihood(steps):
        centres = SoftKMeans(4, scale=scale, steps=steps).coefficients(gram(support, query), right) @ points
        of_query = (-scale * torch.cdist(query, centres).square()).logsumexp(-1).sum(1)
        return of_query - scale * (torch.cdist(support, centres).square() * right.mT).sum((1, 2))

    values = torch.stack([likelihood(steps) for steps in range(1, 7)])
    assert (values.diff(dim=0) >= -1e-9).all()


def tim_objective(w, q, support, labels, query, method):
    """The objective of TIM-ADM summed over tasks: w [B, k, d] and the auxiliary q [B, n, k]."""
    log_p = [(-method.temperature / 2 * torch.cdist(x, w).square()).log_softmax(-1) for x in (support, query)]
    ce = F.nll_loss(log_p[0].mT, labels, reduction="none").mean(1)
    marginal = q.mean(1)
    queries = (q * q.log() - (1 + method.alpha) * q * log_p[1]).sum(-1).mean(1)
    return (method.ce * ce + (marginal * marginal.log()).sum(-1) + queries).sum()


def tim_q(w, query, method):
    """Proposition 1 of the publication, word by word: w [B, k, d] -> q [B, n, k]."""
    p = (-method.temperature / 2 * torch.cdist(query, w).square()).softmax(-1) ** (1 + method.alpha)
    q = p / p.sum(1, keepdim=True).sqrt()
    return q / q.sum(-1, keepdim=True)


def test_a_step_of_tim_goes_down_the_gradient_of_its_objective():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1])
    method = TIM(4, alpha=0.3, ce=0.5)
    points, right = torch.cat([support, query], 1), F.one_hot(labels, 4).mT.double()
    m, n = support.shape[1], query.shape[1]
    A = torch.rand(3, 4, m + n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / (m + n)
    w = (A @ points).requires_grad_()
    q = tim_q(w, query, method).detach()
    gradient = torch.autograd.grad(tim_objective(w, q, support, labels, query, method), w)[0]
    # The update is a fixed point of gradient = 0, that is a gradient step scaled for each class.
    curvature = method.temperature * (method.ce * right.sum(-1) / m + (1 + method.alpha) * q.mean(1)).unsqueeze(-1)
    wanted = (w - gradient / curvature).detach()
    torch.testing.assert_close(method.step(A, gram(support, query), right) @ points, wanted)


def test_tim_raises_the_mutual_information_of_queries_and_labels():
    support, labels, query, _ = tasks(batch=20, shots=1, queries=15, spread=1.0, dim=32)

    def information(steps):
        p = TIM(4, steps=steps).answer(support, labels, query).softmax(-1)
        return torch.special.entr(p.mean(1)).sum(-1) - torch.special.entr(p).sum(-1).mean(1)

    first, later, last = information(1), information(20), information(150)
    assert (later > first).all()
    assert (last > later - 1e-3).all()


@pytest.mark.parametrize("strength", [2.0, 10.0])
def test_the_transport_plan_is_that_of_python_optimal_transport(strength):
    cost = 4 * torch.rand(3, 4, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    method = OptimalTransportMAP(4, strength=strength, sinkhorn=2000)
    log_plan, _ = method.plan(cost, torch.ones(3, 4, 1, dtype=torch.float64))
    for b in range(3):
        wanted = ot.sinkhorn(
            np.full(4, 5.0), np.ones(20), cost[b].numpy(), 1 / strength, numItermax=10**5, stopThr=1e-12
        )
        np.testing.assert_allclose(log_plan[b].exp().numpy(), wanted, atol=1e-8)


def test_transport_plans_give_each_query_one_and_each_class_its_share_whatever_the_cost():
    cost = torch.full((1, 5, 30), 4.0)
    cost[:, 0] = 0  # all queries lie at the first centre, as far from the others as unit vectors can
    log_plan, _ = OptimalTransportMAP(5, strength=50.0, sinkhorn=100).plan(cost, torch.ones(1, 5, 1))
    torch.testing.assert_close(log_plan.exp().sum(1), torch.ones(1, 30))
    torch.testing.assert_close(log_plan.exp().sum(-1), torch.full((1, 5), 6.0))


def test_pt_map_agrees_with_a_loop_that_solves_each_transport_to_the_end():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=6)
    method = OptimalTransportMAP(4, strength=2.0, alpha=0.3, steps=6, sinkhorn=300)
    got = method.answer(support, labels, query).softmax(-1)
    for b in range(len(query)):
        x, q = (powered(points[b].numpy()) for points in (support, query))
        right = np.eye(4)[labels[b].numpy()]
        centres = right.T @ x / right.sum(0)[:, None]
        for step in range(7):
            cost = ((q[:, None] - centres[None]) ** 2).sum(-1)
            plan = ot.sinkhorn(np.ones(24), np.full(4, 6.0), cost, 1 / 2, numItermax=10**4, stopThr=1e-11)
            weights = np.concatenate([right, plan])
            if step < 6:
                means = weights.T @ np.concatenate([x, q]) / weights.sum(0)[:, None]
                centres = centres + 0.3 * (means - centres)
        np.testing.assert_allclose(got[b].numpy(), plan, atol=1e-6)


def powered(x: np.ndarray) -> np.ndarray:
    x = np.sqrt(x)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    x = x - x.mean(0)
    return x / np.linalg.norm(x, axis=1, keepdims=True)
