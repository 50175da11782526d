"""Orders of the classes, by hand; and the run of trying a trained SIB on less kind tasks."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from tiny_images import few_shot_set, untrained_network

from sibcore.sib import SIB
from sibrepro.meta_training import shipped
from sibrepro.meta_training.banks import tasks
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot, trained_sib
from sibrepro.studies.few_shot.imbalance import Orders, random_orders, unbalanced


def random_tasks(ways: int = 3):
    g = torch.Generator().manual_seed(0)
    support = torch.nn.functional.normalize(torch.randn(4, ways, 6, generator=g).double(), dim=-1)
    query = torch.nn.functional.normalize(torch.randn(4, 5 * ways, 6, generator=g).double(), dim=-1)
    return support, torch.arange(ways).expand(4, -1), query


def test_each_order_is_the_model_on_renamed_classes_and_the_average_is_theirs():
    sib, parts = SIB(3, 6, 2, 0.1).double(), random_tasks()
    orders = torch.tensor(list(itertools.permutations(range(3))))
    average, *each = Orders(sib, orders).answer(*parts)
    for order, ours in zip(orders.tolist(), each, strict=True):
        renamed = parts[1].clone().apply_(lambda label, order=order: order[label])
        probabilities = sib(parts[0], renamed, parts[2]).softmax(-1)
        for old, new in enumerate(order):
            assert torch.allclose(ours[..., old], probabilities[..., new])
    assert torch.allclose(average, sum(each) / 6)
    assert (torch.stack(each).std(0) > 1e-6).any(), "the order matters to an untrained xi"


def test_over_all_orders_the_average_no_longer_depends_on_the_order():
    sib, (support, labels, query) = SIB(3, 6, 2, 0.1).double(), random_tasks()
    method = Orders(sib, torch.tensor(list(itertools.permutations(range(3)))))
    order = torch.tensor([2, 0, 1])
    renamed, as_it_is = (method.answer(support, names, query)[0] for names in (order[labels], labels))
    assert torch.allclose(renamed[..., order], as_it_is)


def test_an_equivariant_xi_needs_no_average():
    sib, parts = SIB(3, 6, 2, 0.1, xi="equivariant").double(), random_tasks()
    _, *each = Orders(sib, random_orders(4, 3)).answer(*parts)
    assert torch.allclose(each[0], each[1])


def test_the_first_order_is_the_one_there_is():
    assert random_orders(3, 5)[0].tolist() == [0, 1, 2, 3, 4]
    assert all(sorted(order.tolist()) == [0, 1, 2, 3, 4] for order in random_orders(20, 5))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project that ships features of small pictures."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SIB_HOME", str(folder))
        noisy = few_shot_set(8, 32, noise=0.5)
        shipped.make(noisy, untrained_network(folder / "network.safetensors", noisy.images.shape[1]))
    return folder


@pytest.fixture
def trained(home, monkeypatch):
    """A small SIB with K steps, trained on these features."""
    monkeypatch.setenv("SIB_HOME", str(home))
    same = {"dataset": "noise", "features": "shipped", "queries": 5, "steps": 20, "val_episodes": 20}
    return lambda K: few_shot(FewShot(K=K, test_episodes=50, **same))


@pytest.mark.thorough
def test_the_run_of_a_trained_sib(trained):
    record = unbalanced(trained(1))
    assert record.metrics["balanced"] == pytest.approx(trained(1).metrics["best/1shot"])
    assert (record.arrays["orders"][0] == record.arrays["balanced"]).all()
    assert record.metrics["orders/lowest"] <= record.metrics["balanced"] <= record.metrics["orders/highest"]

    bank, sib = shipped.load("noise", "conv4-64")["test"], trained_sib(trained(1))
    spread = tasks(FewShot(**record.params), bank, "test", 2.0)
    answers = sib(bank.features[spread.support], spread.support_labels, bank.features[spread.query]).argmax(-1)
    assert record.metrics["unbalanced"] == pytest.approx(100 * (answers == spread.query_labels).double().mean().item())


def test_without_steps_the_order_does_not_matter_and_is_not_tried(trained):
    record = unbalanced(trained(0))
    assert set(record.arrays) == {"balanced", "unbalanced"}
    assert not any(name.startswith("orders") for name in record.metrics)


def test_the_trained_model_is_part_of_what_makes_a_run_valid(trained):
    made = trained(1)
    before = unbalanced(made)
    assert before.provenance["data"] == made.provenance["data"] | {"trained": made.files.checkpoint_hash("best")}

    class Other:
        checkpoint, path = made.files.checkpoint, made.files.path

        def checkpoint_hash(self, name):
            return "another"

    again = unbalanced(dataclasses.replace(made, files=Other()))
    assert again.id == before.id
    assert again.provenance["data"]["trained"] == "another"
