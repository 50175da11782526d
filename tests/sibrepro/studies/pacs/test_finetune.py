from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from sibcore.sib import unit
from sibcore.vision.augment import as_float
from sibrepro.studies.pacs.finetune import Recipe, finetune, make_model, own_statistics, start_from_means

RECIPE = Recipe(steps=6, batch=4, turned=2, every=2, peak_lr=1e-2)


def network(dim: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, dim, 3, 2), nn.BatchNorm2d(dim), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers)


def data(seed: int = 0):
    """Images of four domains of twelve; the first three have labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (48, 16, 16, 3), dtype=torch.uint8, generator=generator)
    return images, torch.arange(48) % 3, [*torch.arange(36).view(3, 12)], [*torch.arange(48).view(4, 12)]


def trained(folder, labels=None, recipe=RECIPE, report=lambda line: None):
    images, known, sources, unlabelled = data()
    model = make_model(network(), 6, 3, recipe)
    history = finetune(model, images, known if labels is None else labels, sources, unlabelled, recipe, folder, report)
    return model.state_dict(), history


def same(first, second) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_run_that_was_stopped_ends_in_the_same_bits(tmp_path):
    whole, history = trained(tmp_path / "whole")

    def stop(line: str) -> None:
        if line.startswith("step 4/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", report=stop)
    lines = []
    again, rows = trained(tmp_path / "stopped", report=lines.append)
    assert [line.split("  ")[0] for line in lines] == ["step 6/6"]
    assert same(whole, again)
    assert rows == history


def test_labels_of_a_domain_that_is_no_source_change_nothing(tmp_path):
    _, labels, _, _ = data()
    mixed = labels.clone()
    mixed[36:] = mixed[36:].flip(0) + 1
    assert same(trained(tmp_path / "a")[0], trained(tmp_path / "b", mixed)[0])
    mixed[:36] = mixed[:36].flip(0)
    assert not same(trained(tmp_path / "a")[0], trained(tmp_path / "c", mixed)[0])


def test_turns_are_learned_only_where_they_are_asked_for(tmp_path):
    start = make_model(network(), 6, 3, RECIPE).state_dict()
    with_turns, _ = trained(tmp_path / "a")
    without, history = trained(tmp_path / "b", recipe=dataclasses.replace(RECIPE, turned=0))
    assert not torch.equal(with_turns["turn_head.weight"], start["turn_head.weight"])
    assert torch.equal(without["turn_head.weight"], start["turn_head.weight"])
    assert all(row["turn_loss"] == 0 for row in history)


def test_learning_lowers_the_loss(tmp_path):
    images, labels, sources, unlabelled = data()
    images[labels == 0] //= 4  # classes that can be told apart, by brightness
    images[labels == 1] = 255 - images[labels == 1] // 4
    recipe = Recipe(steps=40, batch=12, every=10, peak_lr=2e-2, jitter=0.0)
    model = make_model(network(), 6, 3, recipe)
    history = finetune(model, images, labels, sources, unlabelled, recipe, tmp_path, lambda line: None)
    assert history[-1]["loss"] < history[0]["loss"] - 0.2
    assert history[-1]["accuracy"] > 0.8


def test_the_head_starts_as_the_class_means_seen_from_their_mean():
    images, labels, _, _ = data()
    model = make_model(network().eval(), 6, 3, RECIPE)
    start_from_means(model, images, labels)
    with torch.no_grad():
        features = unit(model.f(as_float(images)))
    means = torch.stack([features[labels == k].mean(0) for k in range(3)])
    assert torch.allclose(model.head.weight, unit(means - means.mean(0)), atol=1e-5)


def test_own_statistics_are_those_of_the_images():
    images, _, _, _ = data()
    f = network()
    own_statistics(f, images, batch=48)
    with torch.no_grad():
        activations = f[0](as_float(images)).transpose(0, 1).flatten(1)
    assert torch.allclose(f[1].running_mean, activations.mean(1), atol=1e-5)
    assert torch.allclose(f[1].running_var, activations.var(1), atol=1e-5)
    assert f[1].momentum == 0.1
    assert not f.training


def test_a_domain_too_small_for_a_step_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="a domain has 12 images, fewer than the 13 of a step"):
        trained(tmp_path, recipe=dataclasses.replace(RECIPE, batch=13))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    trained(tmp_path)
    with pytest.raises(ValueError, match="belongs to another run: its recipe"):
        trained(tmp_path, recipe=dataclasses.replace(RECIPE, peak_lr=1e-3))
