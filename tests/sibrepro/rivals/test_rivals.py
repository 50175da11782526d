"""What every baseline promises, whatever its method."""

from __future__ import annotations

import math

import pytest
import torch
from few_shot_tasks import tasks

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibrepro.rivals import BASELINES, RECENT, tune

CASES = {
    "1-shot": {"ways": 5, "shots": 1},
    "5-shot": {"ways": 5, "shots": 5},
    "3-way, unbalanced": {"ways": 3, "shots": [1, 4, 2], "queries": [1, 9, 2]},
    "2-way, a class without queries": {"ways": 2, "shots": 1, "queries": [0, 6]},
    "20-way, unbalanced": {"ways": 20, "shots": 1, "queries": [0, 1, 2, 3] * 5},
}

METHODS = BASELINES | RECENT


@pytest.fixture(params=METHODS)
def cls(request):
    return METHODS[request.param]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_a_task_gets_the_same_answer_alone_and_in_a_batch(cls, case):
    support, labels, query, _ = tasks(**case)
    method = cls(case["ways"])
    together = method.answer(support, labels, query)
    alone = torch.cat([method.answer(support[[b]], labels[[b]], query[[b]]) for b in range(len(query))])
    assert together.shape == (*query.shape[:2], case["ways"])
    torch.testing.assert_close(together, alone, atol=1e-10, rtol=0)


def test_permuting_the_queries_permutes_the_answers(cls, case):
    support, labels, query, _ = tasks(**case)
    method = cls(case["ways"])
    order = torch.randperm(query.shape[1], generator=torch.Generator().manual_seed(1))
    moved = method.answer(support, labels, query[:, order])
    torch.testing.assert_close(moved, method.answer(support, labels, query)[:, order], atol=1e-7, rtol=0)


def test_renaming_the_classes_renames_the_answers(cls, case):
    support, labels, query, _ = tasks(**case)
    method = cls(case["ways"])
    name = torch.randperm(case["ways"], generator=torch.Generator().manual_seed(3))
    renamed = method.answer(support, name[labels], query)
    torch.testing.assert_close(renamed[..., name], method.answer(support, labels, query), atol=1e-7, rtol=0)


def test_well_separated_classes_are_answered_perfectly_from_one_example(cls):
    support, labels, query, truth = tasks(ways=5, shots=1, queries=15, dim=64, spread=0.1)
    assert torch.equal(cls(5).answer(support, labels, query).argmax(-1), truth)


def test_answers_in_single_precision_without_gradients_are_finite_and_close(cls, case):
    support, labels, query, _ = tasks(**case)
    method = cls(case["ways"])
    exact = method.answer(support, labels, query)
    with torch.no_grad():
        single = method.answer(support.float(), labels, query.float())
    assert single.dtype == torch.float32
    assert single.isfinite().all()
    torch.testing.assert_close(single.double().softmax(-1), exact.softmax(-1), atol=0.02, rtol=0)


def test_a_single_query_gets_a_finite_answer(cls):
    support, labels, query, _ = tasks(ways=3, shots=1)
    assert cls(3).answer(support, labels, query[:, :1]).isfinite().all()


def test_points_that_are_all_the_same_get_finite_answers(cls):
    support, labels, query, _ = tasks(ways=3, shots=1)
    same = support[:, :1]
    answer = cls(3).answer(same.expand_as(support), labels, same.expand(-1, query.shape[1], -1))
    assert answer.isfinite().all()


def test_a_transductive_method_and_no_other_lets_queries_influence_each_other(cls):
    support, labels, query, _ = tasks(ways=3, shots=1, queries=6)
    method = cls(3)
    fewer = method.answer(support, labels, query[:, :9])
    changed = not torch.allclose(fewer, method.answer(support, labels, query)[:, :9], atol=1e-9)
    assert changed == method.transductive


def test_every_class_says_what_it_is_and_what_may_be_tuned(cls):
    assert cls.title
    assert cls.paper
    assert not cls.trained
    assert math.prod(len(values) for values in cls.grid.values()) <= 9
    assert list(cls(2).parameters()) == []


def test_impossible_hyper_parameters_are_refused_by_name(cls):
    number = next((name for name, values in cls.grid.items() if not isinstance(values[0], bool | str)), "scale")
    with pytest.raises(ValueError, match=f"{number} = -1"):
        cls(3, **{number: -1})
    with pytest.raises(ValueError, match="ways = 1"):
        cls(1)
    with pytest.raises(TypeError, match=f"has no sclae: expected .*{number}"):
        cls(3, sclae=1.0)


def test_tuning_returns_the_point_of_the_grid_with_the_best_accuracy():
    labels = torch.arange(6).repeat_interleave(30)
    centres = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    bank = centres[labels] + 0.8 * torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(1))
    some = EpisodeSampler(labels, 3, 5, 5, seed=0).sample(0, 20)
    cls = BASELINES["matching-net"]
    scores = {scale: evaluate(cls(3, scale=scale), bank, some).mean for scale in cls.grid["scale"]}
    assert len(set(scores.values())) > 1
    assert tune(cls, 3, bank, some) == {"scale": max(scores, key=scores.get)}
