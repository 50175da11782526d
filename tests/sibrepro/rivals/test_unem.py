from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.train import Schedule, train
from sibrepro.rivals import HEADS, PADDLE, UNEM

CASES = {"2-way": (2, 1, [0, 6]), "20-way": (20, 1, 2), "3-way": (3, [1, 4, 2], [1, 9, 2])}


def different_layers(ways: int, **options: float) -> UNEM:
    """A UNEM in double precision whose layers have hyper-parameters of their own."""
    model = UNEM(ways, 12, **options).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator).double())
    return model


def test_unem_agrees_with_its_layers_word_by_word():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 1], queries=[1, 9, 0, 4])
    model = different_layers(4, layers=3, scale=4.0)
    right, v = F.one_hot(labels, 4).double(), 0
    c = right.mT @ support / right.sum(1).unsqueeze(-1)
    for penalty, softness in zip(model.raw_penalty, model.raw_softness, strict=True):
        T, penalty = 1 + (1 + softness.exp()).log(), (1 + penalty.exp()).log()
        u = ((penalty * v - model.log_scale.exp() * torch.cdist(query, c).square()) / T).softmax(-1)
        weights = torch.cat([right, u], 1)
        c = weights.mT @ torch.cat([support, query], 1) / weights.sum(1).unsqueeze(-1)
        v = u.mean(1, keepdim=True).log()
    torch.testing.assert_close(model.answer(support, labels, query).softmax(-1), u)


def test_unem_with_the_same_hard_layers_is_paddle():
    support, labels, query, _ = tasks(queries=[1, 9, 0, 4])
    model = UNEM(4, 12, layers=7, scale=6.0, penalty=0.8).double()
    torch.nn.init.constant_(model.raw_softness, -100.0)
    wanted = PADDLE(4, scale=6.0, penalty=0.8, steps=7).answer(support, labels, query)
    torch.testing.assert_close(model.answer(support, labels, query), wanted, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_order_and_names_do_not_matter_to_unem(case):
    ways, shots, queries = CASES[case]
    support, labels, query, _ = tasks(ways=ways, shots=shots, queries=queries)
    model, g = different_layers(ways), torch.Generator().manual_seed(1)
    answer = model.answer(support, labels, query)
    order, name = torch.randperm(query.shape[1], generator=g), torch.randperm(ways, generator=g)
    torch.testing.assert_close(model.answer(support, name[labels], query[:, order])[..., name], answer[:, order])


def test_every_layer_learns():
    support, labels, query, truth = tasks()
    model = UNEM(4, 12)
    F.cross_entropy(model.answer(support.float(), labels, query.float()).mT, truth).backward()
    assert sum(p.numel() for p in model.parameters()) == 2 * 10 + 1
    assert model.log_scale.grad != 0
    assert (model.raw_softness.grad != 0).all()
    assert model.raw_penalty.grad[0] == 0, "all proportions are equal at first"
    assert (model.raw_penalty.grad[1:] != 0).all()


def test_training_unem_on_unbalanced_tasks_raises_its_accuracy():
    labels = torch.arange(8).repeat_interleave(60)
    centres = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    bank = centres[labels] + 1.5 * torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(1))
    sampler = EpisodeSampler(labels, 4, 1, 10, seed=0, alpha=1.0)
    model, some = HEADS["unem"](4, 16, layers=5, scale=1.0), sampler.sample(10_000, 200)
    before = evaluate(model, bank, some).mean
    train(model, bank, sampler, Schedule(optimiser="adam", steps=60, every=60, lr=0.1), report=lambda _: None)
    assert evaluate(model, bank, some).mean > before + 0.02
