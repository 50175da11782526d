"""What every head promises, whatever its method."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks

from sibcore.episodes import EpisodeSampler
from sibcore.train import Schedule, train
from sibrepro.rivals import HEADS, SNAIL, UNEM, Head, PredictedParameters

CASES = {
    "1-shot": {"ways": 5, "shots": 1},
    "2-way, 5-shot, a class without queries": {"ways": 2, "shots": 5, "queries": [0, 6]},
    "20-way": {"ways": 20, "shots": 1, "queries": 2},
}


@pytest.fixture(params=HEADS)
def cls(request):
    return HEADS[request.param]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def away_from_the_start(cls: type[Head], ways: int, dim: int = 12) -> Head:
    """A head of which every parameter takes part: at the start some layers say nothing."""
    head, g = cls(ways, dim).double(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=g, dtype=torch.float64)
    return head


def test_a_task_gets_the_same_answer_alone_and_in_a_batch(cls, case):
    support, labels, query, _ = tasks(**case)
    head = away_from_the_start(cls, case["ways"])
    together = head.answer(support, labels, query)
    alone = torch.cat([head.answer(support[[b]], labels[[b]], query[[b]]) for b in range(len(query))])
    assert together.shape == (*query.shape[:2], case["ways"])
    torch.testing.assert_close(together, alone, atol=1e-9, rtol=0)


def test_permuting_queries_classes_and_support_permutes_the_answers(cls, case):
    support, labels, query, _ = tasks(**case)
    head, g = away_from_the_start(cls, case["ways"]), torch.Generator().manual_seed(1)
    orders = (torch.randperm(size, generator=g) for size in (query.shape[1], case["ways"], support.shape[1]))
    queries, name, examples = orders
    expected = head.answer(support, labels, query)[:, queries]
    torch.testing.assert_close(head.answer(support, labels, query[:, queries]), expected, atol=1e-8, rtol=0)
    moved = head.answer(support[:, examples], name[labels][:, examples], query[:, queries])
    assert torch.allclose(moved[..., name], expected, atol=1e-8, rtol=0) == (cls is not SNAIL)  # it reads a sequence


def test_a_transductive_head_and_no_other_lets_queries_influence_each_other(cls):
    support, labels, query, _ = tasks(ways=3, shots=1, queries=6)
    head = away_from_the_start(cls, 3)
    fewer, all_of_them = (head.answer(support, labels, query[:, :n])[:, :9].log_softmax(-1) for n in (9, 18))
    assert torch.allclose(fewer, all_of_them, atol=1e-9) != head.transductive


def test_every_parameter_has_the_gradient_of_finite_differences(cls):
    support, labels, query, truth = tasks(ways=3, shots=6)  # enough for the longest delay of SNAIL
    head = away_from_the_start(cls, 3)

    def loss() -> torch.Tensor:
        return F.cross_entropy(head.answer(support, labels, query).mT, truth)

    gradients = torch.autograd.grad(loss(), list(head.parameters()))
    for (name, parameter), gradient in zip(head.named_parameters(), gradients, strict=True):
        assert gradient.abs().max() > 1e-8, name
        step = 1e-6 * gradient / gradient.norm()
        with torch.no_grad():
            parameter += step
            above = loss()
            parameter -= 2 * step
            rise = (above - loss()) / 2e-6
            parameter += step
        assert rise.item() == pytest.approx(gradient.norm().item(), rel=1e-3), name


def test_a_seed_gives_the_same_head_and_leaves_the_global_generator_alone(cls):
    before = torch.get_rng_state()
    one, same, other = (cls(3, 12, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    if cls not in (UNEM, PredictedParameters):  # which begin as PADDLE and as nearest centroids
        assert not all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), before)


def test_answers_in_single_precision_are_those_in_double_and_one_query_is_enough(cls, case):
    support, labels, query, _ = tasks(**case)
    head = away_from_the_start(cls, case["ways"])
    exact = head.answer(support, labels, query[:, :1]).softmax(-1)
    single = head.float().answer(support.float(), labels, query[:, :1].float()).softmax(-1)
    torch.testing.assert_close(single.double(), exact, atol=2e-3, rtol=0)


def test_points_that_are_all_the_same_have_finite_answers_and_gradients(cls):
    support, labels, query, truth = tasks(ways=3, shots=2)
    head, same = away_from_the_start(cls, 3), support[:, :1]
    answer = head.answer(same.expand_as(support), labels, same.expand_as(query))
    gradients = torch.autograd.grad(F.cross_entropy(answer.mT, truth), list(head.parameters()))
    assert answer.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.thorough
def test_training_learns_which_features_count(cls):
    """Classes differ in 4 features of 16, and the other 12 are louder noise."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(20).repeat_interleave(20)
    bank = torch.cat([torch.randn(20, 4, generator=g)[labels], 1.2 * torch.randn(400, 12, generator=g)], 1)
    bank[:, :4] += 0.3 * torch.randn(400, 4, generator=g)
    sampler, some = (EpisodeSampler(labels, 5, 2, 5, seed=seed) for seed in (0, 1))
    head, check = cls(5, 16), some.sample(0, 50)
    features = F.normalize(bank, dim=-1)

    def loss() -> float:
        with torch.no_grad():
            logits = head.answer(features[check.support], check.support_labels, features[check.query])
        return F.cross_entropy(logits.mT, check.query_labels).item()

    before = loss()
    train(head, bank, sampler, Schedule(optimiser="adam", lr=1e-2, steps=50, batch=4), report=lambda line: None)
    assert loss() < before - 0.1


def test_an_answer_needs_no_other_device_than_that_of_the_head(cls):
    """Meta tensors have a device and a shape and no numbers: a tensor made elsewhere would not go with them."""
    support, labels, query, _ = (part.to("meta") for part in tasks(ways=3))
    answer = cls(3, 12).double().to("meta").answer(support, labels, query)
    assert (answer.shape, answer.device.type) == ((3, 15, 3), "meta")


def test_every_head_says_what_it_is_and_has_nothing_to_be_tuned(cls):
    assert cls.title
    assert cls.paper
    assert cls.trained
    assert cls.grid == {}
    assert cls(2, 8, seed=3).setup == {"ways": 2, "dim": 8, "seed": 3, **cls.defaults}
