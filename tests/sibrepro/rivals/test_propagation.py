from __future__ import annotations

import numpy as np
import pytest
import torch
from few_shot_tasks import tasks
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading

from sibrepro.rivals import LabelPropagation, LaplacianShot
from sibrepro.rivals.propagation import neighbour_graph


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_label_propagation_on_the_full_graph_is_what_label_spreading_converges_to(alpha):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1])
    got = LabelPropagation(4, sigma=0.4, alpha=alpha, neighbours=1000).answer(support, labels, query).softmax(-1)
    for b in range(len(query)):
        x = np.concatenate([support[b].numpy(), query[b].numpy()])
        y = np.concatenate([labels[b].numpy(), np.full(query.shape[1], -1)])
        oracle = LabelSpreading(kernel="rbf", gamma=1 / (2 * 0.4**2), alpha=alpha, max_iter=5000, tol=1e-13).fit(x, y)
        np.testing.assert_allclose(got[b].numpy(), oracle.label_distributions_[support.shape[1] :], atol=1e-9)


def test_label_propagation_on_neighbours_solves_its_linear_system():
    support, labels, query, _ = tasks(batch=1)
    method = LabelPropagation(4, sigma=0.5, alpha=0.8, neighbours=3)
    x, m = np.concatenate([support[0].numpy(), query[0].numpy()]), support.shape[1]
    near = kneighbors_graph(x, 3).toarray()
    W = np.maximum(near, near.T) * np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * 0.5**2))
    S = W / np.sqrt(W.sum(1)[:, None] * W.sum(1)[None])
    Y = np.zeros((len(x), 4))
    Y[np.arange(m), labels[0].numpy()] = 1
    wanted = np.linalg.solve(np.eye(len(x)) - 0.8 * S, Y)[m:]
    got = method.answer(support, labels, query)[0].exp()
    np.testing.assert_allclose(got.numpy(), wanted, atol=1e-10)


def test_a_walk_that_never_stops_is_refused():
    with pytest.raises(ValueError, match=r"alpha = 1\.0: expected a number in \(0, 1\)"):
        LabelPropagation(4, alpha=1.0)


def test_the_neighbour_graph_is_that_of_scikit_learn():
    _, _, query, _ = tasks()
    got = neighbour_graph(query @ query.mT, 3)
    for b in range(len(query)):
        assert np.array_equal(got[b].numpy(), kneighbors_graph(query[b].numpy(), 3).toarray() == 1)


def energy(logits: torch.Tensor, a: torch.Tensor, w: torch.Tensor, laplacian: float) -> torch.Tensor:
    """E(Y) of LaplacianShot for each task, tensors [B, k, n] and w [B, n, n]."""
    y = logits.softmax(1)
    pairs = torch.einsum("bkq,bqp,bkp->b", y, w, y)
    return (y * y.log() + y * a).sum((1, 2)) - laplacian / 2 * pairs


@given(st.integers(0, 10**6), st.floats(0.01, 1 / 3))
def test_bound_updates_never_raise_the_energy(seed, laplacian):
    # Linearising the pairs costs at most laplacian |least eigenvalue of w| <= 3 laplacian of the entropy's curvature.
    _, _, query, _ = tasks(seed=seed)
    near = neighbour_graph(query @ query.mT, 3).double()
    w = (near + near.mT) / 2
    a = 3 * torch.rand(3, 4, query.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert np.linalg.eigvalsh(w.numpy()).min() * laplacian >= -1.5
    runs = [LaplacianShot(4, laplacian=laplacian, steps=steps).updates(a, w) for steps in range(1, 8)]
    energies = torch.stack([energy(logits, a, w, laplacian) for logits in [-a, *runs]])
    assert (energies.diff(dim=0) <= 1e-10).all()


@pytest.mark.parametrize("rectify", [True, False])
def test_laplacian_shot_agrees_with_a_loop_over_tasks_and_queries(rectify):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], spread=1.0)
    method = LaplacianShot(4, laplacian=0.6, neighbours=2, steps=5, rectify=rectify)
    got = method.answer(support, labels, query).softmax(-1)
    for b in range(len(query)):
        x, y, q = support[b].numpy(), labels[b].numpy(), query[b].numpy()
        near = kneighbors_graph(q, 2).toarray()
        w = (near + near.T) / 2
        centres = np.stack([x[y == j].mean(0) for j in range(4)])
        if rectify:
            q = q + x.mean(0) - q.mean(0)
            centres = bd_cspn(x, y, q, centres)
        a = ((q[:, None] - centres[None]) ** 2).sum(-1)
        logits = -a
        for _ in range(5):
            logits = -a + 0.6 * w @ softmax(logits)
        np.testing.assert_allclose(got[b].numpy(), softmax(logits), atol=1e-10)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def bd_cspn(x: np.ndarray, y: np.ndarray, q: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Rectified prototypes: each point counts for one class, its label or the nearest prototype by angle."""
    points = np.concatenate([x, q])
    lengths = np.linalg.norm(points, axis=1)[:, None] * np.linalg.norm(centres, axis=1)
    cosine = points @ centres.T / lengths
    belongs = np.concatenate([y, cosine[len(x) :].argmax(1)])
    weight = softmax(10 * cosine)[np.arange(len(points)), belongs]
    return np.stack([np.average(points[belongs == j], 0, weight[belongs == j]) for j in range(4)])
