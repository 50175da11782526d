from __future__ import annotations

import pytest
import torch

from sibcore.sib import unit
from sibrepro.rivals.test_time import (
    TEST_TIME,
    ConfidentPrototypes,
    CosineClassifier,
    EntropyMinimisation,
    PriorCorrection,
    PseudoLabels,
)

WAYS = 3


def task(n: int = 30, spread: float = 0.3, seed: int = 0, labels=None):
    """Support [1, k, d], one a class, its labels, queries [1, n, d] and their classes."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.eye(WAYS, 6, dtype=torch.float64)
    labels = torch.arange(n) % WAYS if labels is None else labels
    noise = torch.randn(len(labels), 6, generator=generator, dtype=torch.float64)
    query = unit(centres[labels] + 0.2 + spread * noise)
    return unit(centres)[None], torch.arange(WAYS)[None], query[None], labels


@pytest.mark.parametrize("cls", [CosineClassifier, *TEST_TIME.values()])
def test_queries_in_another_order_are_answered_in_that_order(cls):
    support, labels, query, _ = task()
    order = torch.randperm(query.shape[1], generator=torch.Generator().manual_seed(1))
    method = cls(WAYS)
    assert torch.allclose(
        method.answer(support, labels, query[:, order]), method.answer(support, labels, query)[:, order]
    )


@pytest.mark.parametrize("cls", [CosineClassifier, *TEST_TIME.values()])
def test_tasks_of_a_batch_do_not_influence_each_other(cls):
    first, second = task(seed=1), task(seed=2)
    together = cls(WAYS).answer(*(torch.cat([a, b]) for a, b in zip(first[:3], second[:3], strict=True)))
    assert torch.allclose(together[:1], cls(WAYS).answer(*first[:3]))
    assert torch.allclose(together[1:], cls(WAYS).answer(*second[:3]))


def test_without_adaptation_logits_are_scaled_cosines():
    support, labels, query, _ = task()
    assert torch.allclose(CosineClassifier(WAYS, scale=7.0).answer(support, labels, query), 7 * query @ support.mT)


def test_a_step_of_entropy_minimisation_follows_autograd():
    support, labels, query, _ = task()
    weights = support.clone().requires_grad_()
    p = (10 * query @ unit(weights).mT).softmax(-1)
    entropy = -(p * p.log()).sum(-1).mean()
    (gradient,) = torch.autograd.grad(entropy, weights)
    expected = 10 * query @ unit(support - 0.1 * gradient).mT
    found = EntropyMinimisation(WAYS, scale=10.0, rate=0.1, steps=1).answer(support, labels, query)
    assert torch.allclose(found, expected)


def test_the_surest_queries_of_a_class_join_its_weight():
    support, labels, query, _ = task()
    p = (10 * query[0] @ support[0].T).softmax(-1)
    sure, guess = p.max(1)
    weights = []
    for k in range(WAYS):
        of_class = (guess == k).nonzero()[:, 0]
        best = of_class[sure[of_class].argsort(descending=True)[:2]]
        weights.append(support[0, k] + query[0, best].sum(0))
    expected = 10 * query[0] @ unit(torch.stack(weights)).T
    assert torch.allclose(ConfidentPrototypes(WAYS, most=2).answer(support, labels, query)[0], expected)


def test_a_class_that_nobody_predicts_keeps_its_weight():
    support, labels, query, _ = task(labels=torch.zeros(8, dtype=torch.long), spread=0.01)
    for method in (ConfidentPrototypes(WAYS), PseudoLabels(WAYS)):
        found = method.answer(support, labels, query)
        assert torch.allclose(found[..., 1:], 10 * query @ support[:, 1:].mT)


def test_pseudo_labels_move_a_weight_part_of_the_way_to_the_mean():
    support, labels, query, classes = task(spread=0.05)
    means = torch.stack([query[0, classes == k].sum(0) for k in range(WAYS)])
    expected = 10 * query[0] @ unit(0.5 * support[0] + 0.5 * unit(means)).T
    assert torch.allclose(PseudoLabels(WAYS, steps=1, trust=0.5).answer(support, labels, query)[0], expected)


def test_the_prior_is_a_fixed_point_of_expectation_maximisation_and_near_the_truth():
    truth = torch.tensor([0] * 40 + [1] * 15 + [2] * 5)
    support, labels, query, _ = task(labels=truth, spread=0.25)
    plain = 20 * query @ support.mT
    found = PriorCorrection(WAYS, scale=20.0, steps=200).answer(support, labels, query)
    log_prior = (found - plain)[0, 0]
    assert torch.allclose(found - plain, log_prior.expand_as(found))
    assert torch.allclose(found.softmax(-1).mean(1)[0], log_prior.exp(), atol=1e-4)
    assert torch.allclose(log_prior.exp(), truth.bincount().double() / 60, atol=0.05)
