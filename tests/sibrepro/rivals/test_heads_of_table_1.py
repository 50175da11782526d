"""Each head against another way to the same numbers; embeddings are as at the start, the identity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks
from sklearn.svm import LinearSVC

from sibrepro.rivals import (
    MAML,
    R2D2,
    TPN,
    LabelPropagation,
    MatchingFCE,
    MatchingNet,
    MetaOptNet,
    NearestCentroid,
    Prototypical,
    Relation,
    RidgeRegression,
)


@pytest.mark.parametrize(
    ("head", "baseline"),
    [
        (Prototypical(4, 12), NearestCentroid(4)),
        (MatchingFCE(4, 12), MatchingNet(4)),
        (Relation(4, 12), NearestCentroid(4, metric="cosine")),
        (R2D2(4, 12), RidgeRegression(4)),
        (TPN(4, 12), LabelPropagation(4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_head_starts_as_the_baseline_that_learns_nothing(head, baseline):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    got, wanted = (method.double().answer(support, labels, query) for method in (head, baseline))
    factor = 2 if isinstance(head, TPN) else 1  # its scale
    torch.testing.assert_close(got.softmax(-1), (factor * wanted).softmax(-1), atol=1e-6, rtol=0)


def test_the_embedding_is_the_identity_at_first_and_has_unit_length_later():
    head = Prototypical(4, 12).double()
    _, _, query, _ = tasks()
    torch.testing.assert_close(head.embed(query), query)
    torch.nn.init.constant_(head.embed.V.bias, 0.7)
    torch.testing.assert_close(head.embed(query), (query + 0.7) / (query + 0.7).norm(dim=-1, keepdim=True))


def test_context_embeddings_agree_with_a_loop_over_the_support_in_order_of_typicality():
    support, _, query, _ = tasks(batch=1)
    head = MatchingFCE(4, 12, width=7).double()
    for layer in (head.of_reader, head.of_looker):
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    order = (-support[0] @ support[0].mean(0)).argsort()
    said, _ = head.reader(support[0][order])
    g = torch.empty_like(support[0])
    for place, i in enumerate(order):
        g[i] = support[0, i] + head.of_reader.weight @ said[place]
    torch.testing.assert_close(head.read(support)[0], g)
    x = query[0, 3]
    f, state = x, (torch.zeros(7, dtype=torch.float64),) * 2
    for _ in range(3):
        weight = (10 * torch.stack([F.cosine_similarity(f, one, dim=0) for one in g])).softmax(0)
        state = head.looker(torch.cat([x, weight @ g]), state)
        f = x + head.of_looker.weight @ state[0]
    torch.testing.assert_close(head.attend(query, g[None])[0, 3], f, atol=1e-6, rtol=0)


def test_relations_are_those_of_an_mlp_over_each_pair():
    _, _, query, _ = tasks()
    centres, head = query[:, 5:9], Relation(4, 12).double()
    torch.nn.init.normal_(head.score.weight, generator=torch.Generator().manual_seed(0))
    got = head.relation(query, centres)
    first = torch.cat([head.of_query.weight, head.of_class.weight], 1)
    for b, q, j in ((0, 0, 0), (1, 7, 3), (2, 19, 1)):
        hidden = (first @ torch.cat([query[b, q], centres[b, j]]) + head.of_query.bias + head.of_class.bias).relu()
        torch.testing.assert_close(got[b, q, j], head.score(head.hidden(hidden).relu()).squeeze())


def test_maml_takes_the_steps_of_autograd():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = MAML(4, 12, steps=3).double()
    torch.nn.init.normal_(head.start, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.log_rates.copy_(torch.tensor([0.5, 1.0, 2.0]).log())
    for b in range(len(query)):
        theta = head.start.detach().expand(4, -1)
        for rate in (0.5, 1.0, 2.0):
            theta = theta.clone().requires_grad_()
            logits = 10 * F.normalize(support[b], dim=-1) @ F.normalize(theta, dim=-1).mT
            theta = theta - rate * torch.autograd.grad(F.cross_entropy(logits, labels[b]), theta)[0]
        wanted = 10 * query[b] @ F.normalize(theta, dim=-1).mT
        torch.testing.assert_close(head.answer(support, labels, query)[b], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_r2d2_solves_least_squares_with_the_penalty_as_further_rows(penalty):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = R2D2(4, 12).double()
    with torch.no_grad():
        head.log_penalty.fill_(penalty).log_()
    # a column of ones for the intercept, on which there is no penalty
    rows = torch.cat([penalty**0.5 * torch.eye(12), torch.zeros(12, 1)], 1).double()
    X = torch.cat([F.pad(support, (0, 1), value=1.0), rows.expand(len(support), -1, -1)], 1)
    Y = F.pad(F.one_hot(labels, 4).double(), (0, 0, 0, 12))
    wanted = 10 * F.pad(query, (0, 1), value=1.0) @ torch.linalg.lstsq(X, Y).solution
    torch.testing.assert_close(head.answer(support, labels, query), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_metaoptnet_converges_to_the_weights_of_liblinear(C):
    support, labels, _, _ = tasks(batch=2, shots=5, spread=1.5)
    head = MetaOptNet(4, 12, iterations=2000).double()
    with torch.no_grad():
        head.log_C.fill_(C).log_()
    A = head.coefficients(support @ support.mT, F.one_hot(labels, 4).double())
    for b in range(len(support)):
        options = {"multi_class": "crammer_singer", "fit_intercept": False, "tol": 1e-8, "max_iter": 10**6}
        oracle = LinearSVC(C=C, **options).fit(support[b].numpy(), labels[b].numpy())
        np.testing.assert_allclose((A[b].mT @ support[b]).detach().numpy(), oracle.coef_, atol=2e-4)


def test_thirty_iterations_of_metaoptnet_almost_close_the_duality_gap():
    support, labels, _, _ = tasks(batch=50, ways=5, shots=5, dim=64, spread=2.0)
    right = F.one_hot(labels, 5).double()
    A = MetaOptNet(5, 64).double().coefficients(support @ support.mT, right)
    W = A.mT @ support
    scores, length = support @ W.mT, W.square().sum((1, 2)) / 2
    top = length + (scores + 1 - right - (scores * right).sum(-1, keepdim=True)).amax(-1).sum(-1)
    bottom = (A * right).sum((1, 2)) - length
    assert (bottom <= top).all()
    assert (top - bottom < 0.03 * top).all()


def test_tpn_is_the_explicit_inverse_with_a_scale_for_each_point():
    support, labels, query, _ = tasks(batch=1)
    head = TPN(4, 12, alpha=0.8, neighbours=1000).double()
    torch.nn.init.normal_(head.h[-1].weight, std=0.3, generator=torch.Generator().manual_seed(0))
    x, m = torch.cat([support[0], query[0]]), support.shape[1]
    sigma = head.h(x).exp().detach()
    assert sigma.max() > 1.1 * sigma.min()
    x = (x / sigma).numpy()
    W = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    np.fill_diagonal(W, 0)
    S = W / np.sqrt(W.sum(1)[:, None] * W.sum(1)[None])
    Y = np.eye(4)[labels[0].numpy()]
    wanted = np.linalg.inv(np.eye(len(x)) - 0.8 * S)[m:, :m] @ Y
    got = (head.answer(support, labels, query)[0] / 2).exp().detach().numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_walk_that_never_stops_is_refused():
    with pytest.raises(ValueError, match=r"alpha = 1\.0: expected a number in \(0, 1\)"):
        TPN(4, 12, alpha=1.0)
