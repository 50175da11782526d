"""The quantities along theta^0, theta^1, ... against loops over tasks and queries."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_images import few_shot_set, untrained_network
from torch.nn import functional as F

from sibcore.episodes import EpisodeSampler
from sibcore.sib import SIB
from sibcore.vision.features import Features
from sibrepro.meta_training import shipped
from sibrepro.meta_training.along_the_steps import BEYOND, BINS, diagnose, diagnostics
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import few_shot

CLASSES, PER_CLASS, DIM = 8, 20, 6


@pytest.fixture(scope="module")
def world():
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    features = 2 * torch.randn(CLASSES, DIM, generator=g)[labels] + torch.randn(len(labels), DIM, generator=g)
    bank = Features(features.double(), torch.empty(0), labels, tuple("abcdefgh"), "")
    model = SIB(5, DIM, 2, 0.05).double()
    return model, bank, EpisodeSampler(labels, 5, 1, 3, seed=0).sample(0, 120)


def test_accuracy_loss_calibration_and_xi_by_brute_force(world):
    model, bank, tasks = world
    metrics, arrays = diagnose(model, bank, tasks, batch=50)
    steps = 2 + BEYOND
    for k in (0, 2, steps):
        same = SIB(**model.setup | {"steps": k}).double()
        same.load_state_dict(model.state_dict())
        support, query = bank.features[tasks.support], bank.features[tasks.query]
        logits = same(support, tasks.support_labels, query)
        probability, answer = logits.detach().softmax(-1).max(-1)
        right = answer == tasks.query_labels
        assert metrics[f"accuracy/{k}"] == pytest.approx(right.double().mean().item())
        flat = zip(logits.detach().softmax(-1).view(-1, 5), tasks.query_labels.flatten(), strict=True)
        losses = [-math.log(p[y]) for p, y in flat]
        assert metrics[f"loss/{k}"] == pytest.approx(sum(losses) / len(losses))
        cosines = []
        for z, y in zip(logits, tasks.query_labels, strict=True):
            truth = z.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(truth, y), truth)
            xi = model.xi(z[None])[0].detach()
            cosines.append((xi * gradient).sum() / xi.norm() / gradient.norm())
        assert metrics[f"xi_cosine/{k}"] == pytest.approx(torch.stack(cosines).mean().item())
        gaps = 0.0
        for b in range(BINS):
            there = (probability >= b / BINS) & (probability < (b + 1) / BINS)
            assert arrays["weight"][k, b] == there.sum()
            if there.any():
                gaps += abs(probability[there].mean() - right[there].double().mean()) * there.sum()
        assert metrics[f"calibration_error/{k}"] == pytest.approx(float(gaps) / right.numel())
    assert f"accuracy/{steps + 1}" not in metrics


def test_the_view_keeps_the_task_and_its_steps(world):
    _, arrays = diagnose(*world)
    assert arrays["view/queries"].shape == (15, 2)
    assert arrays["view/theta"].shape == (3, 5, 2)
    assert sorted(arrays["view/labels"]) == sorted([0, 1, 2, 3, 4] * 3)
    assert arrays["view/queries"].mean(0) == pytest.approx([0, 0], abs=1e-9)


def test_more_steps_with_the_same_parameters(world):
    model, bank, tasks = world
    longer = model.changed(steps=model.steps + 2)
    part = bank.features[tasks.support], tasks.support_labels, bank.features[tasks.query]
    assert torch.allclose(longer.trajectory(*part)[:3], model.trajectory(*part))
    assert len(longer.trajectory(*part)) == 5


def test_a_trained_sib_is_diagnosed_on_its_test_tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    noisy = few_shot_set(8, 16, noise=0.5)
    shipped.make(noisy, untrained_network(tmp_path / "network.safetensors", noisy.images.shape[1]))
    p = FewShot(dataset="noise", features="shipped", K=2, queries=5, steps=5, val_episodes=10, test_episodes=40)
    trained = few_shot(p)
    record = diagnostics(trained)
    assert 100 * record.metrics["accuracy/2"] == pytest.approx(trained.metrics["best/1shot"])
    assert record.arrays["weight"].shape == (2 + BEYOND + 1, BINS)
    assert record.provenance["data"] == trained.provenance["data"] | {"trained": trained.files.checkpoint_hash("best")}
