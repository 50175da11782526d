"""The training of the any-way SIB, on made-up clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.transduce import resized
from sibcore.xi import XIS
from sibrepro.studies.any_way import any_way
from sibrepro.studies.any_way.any_way import AnyWay

SMALL = AnyWay(dim=16, steps=40, queries=100, per_class=40, episodes=20)


@pytest.fixture(scope="module")
def bank() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24).repeat_interleave(40)
    centres = torch.randn(24, 32, generator=generator)
    return centres[labels] + 1.5 * torch.randn(len(labels), 32, generator=generator), labels


@pytest.fixture(scope="module")
def trained(bank):
    return any_way.train(SMALL, *bank)


@pytest.mark.thorough
@pytest.mark.parametrize("xi", ["equivariant", "set"])
def test_what_is_trained_fits_any_ways_and_features_and_is_the_same_again(bank, xi):
    settings = dataclasses.replace(SMALL, xi=xi, width=4)
    model, loss = any_way.train(settings, *bank)
    assert type(model.xi) is XIS[xi]
    assert (model.prototype_weight == 1).all()
    assert (model.ways, model.eta, model.setup["ways"]) == (any_way.NOMINAL, SMALL.eta, any_way.NOMINAL)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    again, _ = any_way.train(settings, *bank)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, again.state_dict()[name], rtol=0, atol=0)
    other, _ = any_way.train(dataclasses.replace(settings, seed=1), *bank)
    assert not torch.equal(other.scale, model.scale)
    assert loss.shape == (20,)
    assert np.isfinite(loss).all()
    assert resized(model, {}, 11, 99).setup["dim"] == 99


def test_a_test_compares_the_same_tasks(bank, trained):
    tasks = EpisodeSampler(bank[1], 7, 2, 5, seed=9).sample(0, 30)
    found = any_way.tested(trained[0], {}, bank[0], tasks)
    served = resized(trained[0], {}, 7, 32)
    before, after = (100 * evaluate(sib, bank[0], tasks).accuracies for sib in (served.changed(steps=0), served))
    assert found["/before"] == pytest.approx(before.mean().item())
    assert found[""] == pytest.approx(after.mean().item())
    assert found["/gain"] == pytest.approx((after - before).mean().item(), abs=1e-4)
    assert found["/gain_ci95"] == pytest.approx(1.96 * (after - before).numpy().std() / 30**0.5, abs=1e-4)


def test_shapes_of_tasks_vary_and_fit_the_pictures_there_are(bank):
    rng = np.random.default_rng(0)
    tasks = [any_way._tasks(SMALL, bank[1], step, rng) for step in range(60)]
    assert {one.classes.shape[1] for one in tasks} == set(any_way.WAYS)
    assert {one.support.shape[1] // one.classes.shape[1] for one in tasks} == set(any_way.SHOTS)
    assert all(len(one) * one.query.shape[1] <= SMALL.queries or len(one) == 2 for one in tasks)


def test_pictures_are_made_larger():
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8))
    larger = 255 * any_way._resized(images, 16)
    assert larger.shape == (2, 3, 16, 16)
    torch.testing.assert_close(larger, larger.round().clamp(0, 255), atol=1e-3, rtol=0)  # whole numbers
    assert (larger.mean((2, 3)) - images.float().mean((1, 2))).abs().max() < 3
    assert torch.equal(any_way._resized(images, 8), images.permute(0, 3, 1, 2) / 255)


def test_xi_does_not_see_what_is_added_to_all_logits_of_a_query(trained):
    xi = trained[0].xi
    generator = torch.Generator().manual_seed(4)
    logits, shift = torch.randn(2, 9, 6, generator=generator), 10 * torch.randn(2, 9, 1, generator=generator)
    torch.testing.assert_close(xi(logits + shift), xi(logits), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(xi(2 * logits), xi(logits))


def test_views_are_unit_features_of_the_same_pictures(bank):
    seen = any_way.views(SMALL, torch.nn.functional.normalize(bank[0], dim=1), bank[1])
    assert {len(one) for one in seen} == {len(bank[1])}
    for one in seen:
        torch.testing.assert_close(one.norm(dim=1), torch.ones(len(one)))
        means = torch.stack([one[bank[1] == label].mean(0) for label in range(24)])
        assert ((one @ means.mT).argmax(1) == bank[1]).float().mean() > 5 / 24  # classes are still told apart
