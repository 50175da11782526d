from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid as SklearnCentroid
from sklearn.svm import LinearSVC

from sibrepro.rivals import SVM, MatchingNet, NearestCentroid, RidgeRegression
from sibrepro.rivals.linear import project_on_simplex


def test_nearest_centroid_agrees_with_scikit_learn():
    support, labels, query, _ = tasks(batch=6, shots=[1, 3, 2, 5], spread=1.5)
    answer = NearestCentroid(4).answer(support, labels, query).argmax(-1)
    for b in range(len(query)):
        oracle = SklearnCentroid().fit(support[b].numpy(), labels[b].numpy())
        assert oracle.predict(query[b].numpy()).tolist() == answer[b].tolist()


def test_nearest_centroid_logits_are_minus_half_the_scaled_squared_distance_up_to_a_constant():
    support, labels, query, _ = tasks()
    centres = torch.stack(
        [torch.stack([s[y == j].mean(0) for j in range(4)]) for s, y in zip(support, labels, strict=True)]
    )
    wanted = -7 / 2 * torch.cdist(query, centres).square()
    got = NearestCentroid(4, scale=7).answer(support, labels, query)
    torch.testing.assert_close(got.log_softmax(-1), wanted.log_softmax(-1))


def test_the_metric_makes_no_difference_with_one_shot_but_does_with_more():
    for shots, same in ((1, True), (5, False)):
        support, labels, query, _ = tasks(shots=shots)
        methods = [NearestCentroid(4, metric=metric) for metric in ("euclidean", "cosine")]
        euclidean, cosine = (method.answer(support, labels, query).softmax(-1) for method in methods)
        assert torch.allclose(euclidean, cosine) == same
    with pytest.raises(ValueError, match="metric = 'manhattan'"):
        NearestCentroid(4, metric="manhattan")


def test_matching_net_sums_the_attention_of_each_class():
    support, labels, query, _ = tasks(batch=1, shots=[1, 3, 2, 5])
    probability = MatchingNet(4, scale=4).answer(support, labels, query).exp()[0]
    weight = np.exp(4 * query[0].numpy() @ support[0].numpy().T)
    weight /= weight.sum(1, keepdims=True)
    wanted = np.stack([weight[:, labels[0].numpy() == j].sum(1) for j in range(4)], 1)
    np.testing.assert_allclose(probability.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_ridge_regression_agrees_with_scikit_learn_intercept_included(penalty):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    got = RidgeRegression(4, penalty=penalty, scale=3.0).answer(support, labels, query) / 3
    for b in range(len(query)):
        oracle = Ridge(alpha=penalty, solver="cholesky").fit(support[b].numpy(), np.eye(4)[labels[b].numpy()])
        np.testing.assert_allclose(got[b].numpy(), oracle.predict(query[b].numpy()), atol=1e-9)


def primal(W: np.ndarray, x: np.ndarray, y: np.ndarray, C: float) -> float:
    """Crammer and Singer's objective, W [k, d]."""
    scores = x @ W.T
    margins = scores + (np.arange(len(W)) != y[:, None]) - scores[np.arange(len(y)), y][:, None]
    return (W**2).sum() / 2 + C * margins.max(1).sum()


def svm_weights(support, labels, C, passes=100):
    return (SVM(4, C=C, passes=passes).coefficients(support, F.one_hot(labels, 4).mT.double()) @ support).numpy()


@pytest.mark.thorough
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_the_svm_reaches_the_objective_that_liblinear_reaches(C):
    support, labels, _, _ = tasks(batch=2, shots=5, spread=1.5)
    W = svm_weights(support, labels, C, passes=300)  # 20 examples in 12 dimensions are harder than those of use
    for b in range(len(support)):
        x, y = support[b].numpy(), labels[b].numpy()
        oracle = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=10**6).fit(x, y)
        best = primal(oracle.coef_, x, y, C)
        assert primal(W[b], x, y, C) == pytest.approx(best, rel=1e-4)


def test_the_svm_solves_its_dual_quadratic_programme():
    C, (support, labels, _, _) = 0.7, tasks(batch=2, shots=1, ways=4, spread=1.5)
    A = SVM(4, C=C).coefficients(support, F.one_hot(labels, 4).mT.double()).numpy()
    for b in range(len(support)):
        right = np.eye(4)[labels[b].numpy()].T  # [k, m]
        products = (support[b] @ support[b].T).numpy()

        def dual(a, right=right, products=products):
            a = a.reshape(right.shape)
            return np.trace(a @ products @ a.T) / 2 - (a * right).sum()

        oracle = minimize(
            dual,
            np.zeros(right.size),
            method="SLSQP",
            bounds=[(None, C * top) for top in right.flatten()],
            constraints={"type": "eq", "fun": lambda a, shape=right.shape: a.reshape(shape).sum(0)},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert oracle.success
        assert np.abs(A[b].sum(0)).max() < 1e-12
        assert (A[b] <= C * right + 1e-12).all()
        assert dual(A[b]) == pytest.approx(oracle.fun, abs=1e-7)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_a_hundred_passes_of_the_svm_close_the_duality_gap(C):
    support, labels, _, _ = tasks(batch=50, ways=4, shots=5, dim=64, spread=2.0)
    A, W = SVM(4, C=C).coefficients(support, F.one_hot(labels, 4).mT.double()), svm_weights(support, labels, C)
    for b in range(len(support)):
        top = primal(W[b], support[b].numpy(), labels[b].numpy(), C)
        bottom = A[b].T.gather(1, labels[b, :, None]).sum().item() - (W[b] ** 2).sum() / 2
        assert 0 <= top - bottom + 1e-9 < 1e-3 * top


def test_the_projection_on_the_simplex_is_the_nearest_point():
    g = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(20, 5, generator=g, dtype=torch.float64)
    p = project_on_simplex(x, 1.7)
    torch.testing.assert_close(p.sum(-1), torch.full((20,), 1.7, dtype=torch.float64))
    assert (p >= 0).all()
    corners = 1.7 * torch.eye(5, dtype=torch.float64)
    # p is nearest if x - p makes no acute angle with any way from p into the simplex
    assert ((x - p) @ corners.T - ((x - p) * p).sum(-1, keepdim=True) <= 1e-12).all()
