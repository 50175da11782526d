from __future__ import annotations

import torch
import torch.nn.functional as F
from few_shot_tasks import tasks
from hypothesis import given
from hypothesis import strategies as st

from sibrepro.rivals import PADDLE, SoftKMeans


def means(support, labels, query, u):
    """Centres [B, k, d] of the support and the queries with weights u [B, n, k]."""
    weights = torch.cat([F.one_hot(labels, u.shape[-1]).double(), u], 1)
    return weights.mT @ torch.cat([support, query], 1) / weights.sum(1).unsqueeze(-1)


def description_length(u, support, labels, query, scale, penalty):
    """The objective for each task, at the best centres for u [B, n, k]."""
    c = means(support, labels, query, u)
    right = F.one_hot(labels, u.shape[-1]).double()
    fit = (u * torch.cdist(query, c).square()).sum((1, 2)) + (right * torch.cdist(support, c).square()).sum((1, 2))
    complexity = torch.special.entr(u.mean(1)).sum(-1) * u.shape[1]
    return scale * fit - torch.special.entr(u).sum((1, 2)) + penalty * complexity


@given(st.integers(0, 10**6), st.floats(0.5, 30), st.floats(0.01, 2))
def test_paddle_never_raises_the_length_of_its_description(seed, scale, penalty):
    support, labels, query, _ = tasks(seed=seed, spread=1.5, shots=[1, 3, 2, 1], queries=[1, 9, 0, 4])
    runs = [PADDLE(4, scale=scale, penalty=penalty, steps=steps) for steps in range(1, 7)]
    answers = [method.answer(support, labels, query).softmax(-1) for method in runs]
    lengths = torch.stack([description_length(u, support, labels, query, scale, penalty) for u in answers])
    assert (lengths.diff(dim=0) <= 1e-9).all()


def test_paddle_agrees_with_its_updates_word_by_word():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=[1, 9, 0, 4])
    c, v = means(support, labels, query, torch.zeros(*query.shape[:2], 4).double()), 0
    for _ in range(5):
        u = (v - 6 * torch.cdist(query, c).square()).softmax(-1)
        c, v = means(support, labels, query, u), 0.7 * u.mean(1, keepdim=True).log()
    got = PADDLE(4, scale=6.0, penalty=0.7, steps=5).answer(support, labels, query)
    torch.testing.assert_close(got.softmax(-1), u)


def test_paddle_without_a_penalty_is_soft_k_means():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1])
    # soft k-means answers with the centres after its last step, PADDLE with the assignments of its last step
    paddle = PADDLE(4, scale=6.0, penalty=1e-13, steps=5).answer(support, labels, query)
    wanted = SoftKMeans(4, scale=6.0, steps=4).answer(support, labels, query)
    torch.testing.assert_close(paddle.softmax(-1), wanted.softmax(-1))


def test_paddle_lets_a_class_have_more_queries_than_soft_k_means_does():
    support, labels, query, truth = tasks(batch=40, shots=1, queries=[20, 2, 1, 1], spread=1.0, dim=32)
    methods = PADDLE(4, scale=5.0), SoftKMeans(4, scale=5.0)
    accuracies = [(m.answer(support, labels, query).argmax(-1) == truth).double().mean() for m in methods]
    assert accuracies[0] > accuracies[1] + 0.02
