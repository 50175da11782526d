from __future__ import annotations

import dataclasses
from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from adaptation_domains import domains, setting
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sibcore import adapt as adaptation
from sibcore.adapt import Adapter, Schedule, predict
from sibcore.sib import unit
from sibrepro.studies.pacs.experiment import compute, domain_rows, first_lambda


def adapter(K=3, method="SIB-Rot", seed=0, eta=0.1):
    """Every parameter away from its first value, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    model = Adapter(nn.Identity(), torch.randn(3, 6, generator=generator), torch.zeros(6), K, eta, method).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def tasks(n=5, seed=1):
    """Unit features [2, n, 6] upright and [2, 4n, 6] in all turns, turns [2, 4n]."""
    generator = torch.Generator().manual_seed(seed)
    turned = unit(torch.randn(2, 4 * n, 6, generator=generator, dtype=torch.float64))
    return turned[:, :n], turned, torch.arange(4).repeat_interleave(n).expand(2, -1)


def test_without_rotations_and_steps_the_class_weights_are_lambda():
    for method in ("source-only", "Rot", "SIB"):
        model = adapter(K=0, method=method)
        (theta,) = model.theta(*tasks())
        assert torch.equal(theta, model.start.expand(2, -1, -1))


def test_the_steps_after_the_first_are_those_of_few_shot_sib():
    """With a support set whose prototypes are theta^0, few-shot inference takes the same path."""
    model, (upright, turned, turns) = adapter(), tasks()
    model.sib.prototype_weight.data.fill_(1.0)
    theta = model.theta(upright, turned, turns)
    assert len(theta) == 4
    again = model.sib.infer(theta[0], torch.arange(3).expand(2, -1), upright)
    for ours, few_shot in zip(theta, again, strict=True):
        assert torch.allclose(ours, few_shot, atol=1e-12)
    assert not torch.allclose(theta[0], theta[-1], atol=1e-3)


def test_a_head_that_ignores_the_class_predictions_moves_no_class_weights():
    model = adapter(K=0)
    model.turn_head.weight.data[:, :3] = 0
    (theta,) = model.theta(*tasks())
    assert torch.allclose(theta, model.start.expand(2, -1, -1))


def test_cross_entropy_teaches_the_rotation_head_through_the_first_step_only_of_sib_rot():
    for method, taught in {"SIB-Rot": True, "SIB": False}.items():
        model = adapter(method=method)
        upright, turned, turns = tasks()
        logits = model.sib.classify(upright, model.theta(upright, turned, turns)[-1])
        F.cross_entropy(logits.flatten(0, 1), torch.arange(10) % 3).backward()
        assert (model.turn_head.weight.grad is not None) == taught
        assert model.start.grad.abs().max() > 0


def test_the_rotation_loss_leaves_lambda_alone():
    model, (_, turned, turns) = adapter(), tasks()
    model.turn_loss(turned, turns).backward()
    assert model.start.grad is None
    assert model.turn_head.weight.grad.abs().max() > 0


def test_only_methods_that_descend_take_steps():
    with pytest.raises(ValueError, match="K must be 0, not 3"):
        Adapter(nn.Identity(), torch.ones(3, 6), torch.zeros(6), 3, method="Rot")
    with pytest.raises(ValueError, match="source-only, Rot, SIB, SIB-Rot"):
        Adapter(nn.Identity(), torch.ones(3, 6), torch.zeros(6), 3, method="JiGen")


class Sees(Adapter):
    """Notes which images, told by the length of their features, came in which minibatch."""

    def theta(self, upright, turned, turns):
        self.seen.append(upright[0, :, 0].tolist())
        return super().theta(upright, turned, turns)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 40), batch=st.integers(1, 50), order=st.sampled_from(["shuffled", "file"]))
def test_each_image_is_predicted_exactly_once_in_minibatches_of_like_size(count, batch, order):
    model = Sees(nn.Identity(), torch.eye(3, 6), torch.zeros(6), 1)
    model.seen = []
    features = torch.arange(count)[None, :, None].float().expand(4, -1, 6)
    assert (predict(model, features, batch, order) >= 0).all()
    sizes = [len(part) for part in model.seen]
    assert sorted([*chain(*model.seen)]) == list(range(count))
    assert max(sizes) <= batch
    assert max(sizes) - min(sizes) <= 1
    if order == "file":
        assert [*chain(*model.seen)] == list(range(count))


def test_without_steps_the_size_and_order_of_minibatches_do_not_matter():
    model = adapter(K=0, method="SIB")
    features = unit(torch.randn(4, 30, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
    cosine = F.cosine_similarity(features[0][:, None], model.start[None], dim=-1)
    for batch, order in [(1, "file"), (7, "shuffled"), (30, "shuffled")]:
        assert torch.equal(predict(model, features, batch, order), (model.sib.scale * cosine).argmax(-1))


def test_with_alpha_every_class_is_as_likely_and_tasks_differ_more_than_by_chance():
    labels = torch.tensor([0] * 90 + [1] * 9 + [2])
    rows, generator = torch.arange(1000, 1100), torch.Generator().manual_seed(0)
    plain, varied = (
        torch.stack([adaptation.draw(rows, labels, Schedule(batch=20, alpha=alpha), generator) for _ in range(400)])
        for alpha in (0.0, 1.0)
    )
    assert all(len(set(task.tolist())) == 20 for task in plain), "without alpha no image comes twice"
    shares = [(labels[found - 1000] == 0).float().mean(1) for found in (plain, varied)]
    assert shares[0].mean() == pytest.approx(0.9, abs=0.02)
    assert shares[1].mean() == pytest.approx(1 / 3, abs=0.05)
    assert shares[1].std() == pytest.approx((1 / 18 + 1 / 3 * 2 / 3 / 20 * 3 / 4) ** 0.5, rel=0.15)  # a Dirichlet(1)'s


@pytest.mark.parametrize("turns", ["all", "one"])
def test_training_lowers_both_losses(turns):
    bank, p = domains(), setting(turns=turns)
    sources, _, target = domain_rows(p, bank)
    start, centre = first_lambda(nn.Identity(), bank.inputs[0, sources[0]], bank.labels[sources[0]], 3)
    model = Adapter(nn.Identity(), start, centre, 1, 0.01)
    schedule = Schedule(steps=60, batch=8, lr=1e-2, turns=turns)
    history = adaptation.train(model, bank, sources, target, schedule)
    assert [row["step"] for row in history] == list(range(3, 61, 3))
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["turn_loss"] < history[0]["turn_loss"]


@pytest.mark.parametrize("method", ["SIB-Rot", "source-only"])
def test_labels_of_the_target_change_nothing_but_the_score(method):
    bank, p = domains(), setting(method=method, K=0 if method == "source-only" else 2)
    labels = bank.labels.clone()
    target = bank.domains == bank.domain_names.index(p.target)
    labels[target] = (labels[target] + 1) % 3
    other = dataclasses.replace(bank, labels=labels)
    (metrics, arrays), (shuffled, same) = (compute(p, (b, nn.Identity())) for b in (bank, other))
    for name in set(arrays) - {"labels"}:
        assert (arrays[name] == same[name]).all(), name
    assert metrics["held_out"] == shuffled["held_out"]
    assert metrics["accuracy"] != shuffled["accuracy"]


def test_rotation_as_a_second_task_cannot_help_if_nothing_of_f_is_trained():
    bank = domains()
    found = [compute(setting(method=m, K=0), (bank, nn.Identity()))[1]["predicted"] for m in ("source-only", "Rot")]
    assert (found[0] == found[1]).all()


def test_the_trained_part_of_f_is_trained_and_the_original_is_not():
    bank = domains()
    f = nn.Linear(8, 5)
    before = f.weight.clone()
    metrics, _ = compute(setting(method="Rot", K=0, steps=40, lr=1e-2), (bank, f))
    assert torch.equal(f.weight, before)
    assert metrics["held_out"] > 60
