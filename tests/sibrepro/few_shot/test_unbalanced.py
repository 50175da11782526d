"""Orders of the classes, by hand; and the record of a trained SIB on less kind tasks."""

from __future__ import annotations

import itertools

import pytest
import torch
from tiny_images import untrained_network

from sibcore import datasets
from sibcore import train as meta
from sibcore.sib import SIB
from sibrepro.few_shot import experiment as few_shot
from sibrepro.few_shot import unbalanced as realism
from sibrepro.few_shot.experiment import FewShot


def random_tasks(ways: int = 3):
    g = torch.Generator().manual_seed(0)
    support = torch.nn.functional.normalize(torch.randn(4, ways, 6, generator=g).double(), dim=-1)
    query = torch.nn.functional.normalize(torch.randn(4, 5 * ways, 6, generator=g).double(), dim=-1)
    return support, torch.arange(ways).expand(4, -1), query


def test_each_order_is_the_model_on_renamed_classes_and_the_average_is_theirs():
    sib, tasks = SIB(3, 6, 2, 0.1).double(), random_tasks()
    orders = torch.tensor(list(itertools.permutations(range(3))))
    method = realism.AveragedOrders(sib, orders)
    each = method.each(*tasks)
    for order, ours in zip(orders.tolist(), each, strict=True):
        renamed = tasks[1].clone().apply_(lambda label, order=order: order[label])
        probabilities = sib(tasks[0], renamed, tasks[2]).softmax(-1)
        for old, new in enumerate(order):
            assert torch.allclose(ours[..., old], probabilities[..., new])
    assert torch.allclose(method.answer(*tasks).exp(), sum(each) / 6)
    assert (each.std(0) > 1e-6).any(), "the order matters to an untrained xi"


def test_over_all_orders_the_average_no_longer_depends_on_the_order():
    sib, (support, labels, query) = SIB(3, 6, 2, 0.1).double(), random_tasks()
    method = realism.AveragedOrders(sib, torch.tensor(list(itertools.permutations(range(3)))))
    order = torch.tensor([2, 0, 1])
    assert torch.allclose(
        method.answer(support, order[labels], query)[..., order], method.answer(support, labels, query)
    )


def test_an_equivariant_xi_needs_no_average():
    sib, tasks = SIB(3, 6, 2, 0.1, equivariant=True).double(), random_tasks()
    each = realism.AveragedOrders(sib, realism.random_orders(4, 3)).each(*tasks)
    assert torch.allclose(each[0], each[1])


def test_the_first_order_is_the_one_there_is():
    assert realism.random_orders(3, 5)[0].tolist() == [0, 1, 2, 3, 4]
    assert all(sorted(order.tolist()) == [0, 1, 2, 3, 4] for order in realism.random_orders(20, 5))


def test_the_record_of_a_trained_sib(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    glyphs = datasets.load("glyphs", per_class=32)
    network = untrained_network(tmp_path / "network.safetensors", glyphs.images.shape[1])
    p = FewShot(dataset="glyphs", K=1, queries=5, steps=20, val_episodes=20, test_episodes=50)
    trained = few_shot.few_shot(p, glyphs, network)
    record = realism.realism(trained, data=glyphs, network=network)
    assert record.metrics["balanced"] == pytest.approx(trained.metrics["best/1shot"])
    assert (record.arrays["orders"][0] == record.arrays["balanced"]).all()
    assert record.metrics["orders/lowest"] <= record.metrics["balanced"] <= record.metrics["orders/highest"]
    bank = few_shot.source(p, glyphs, network).banks()["test"]
    sib, _ = meta.load_sib(trained.folder / "best.safetensors")
    spread = few_shot.tasks(p, bank, "test", 2.0)
    answers = sib(bank.features[spread.support], spread.support_labels, bank.features[spread.query]).argmax(-1)
    assert record.metrics["unbalanced"] == pytest.approx(100 * (answers == spread.query_labels).double().mean().item())
