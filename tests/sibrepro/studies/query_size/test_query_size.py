"""The study of the size of the query set: what is measured, against loops."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tiny_images import few_shot_set, untrained_network

from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibcore.vision.features import Features, feature_bank
from sibrepro.meta_training.banks import SPLITS, tasks
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT, few_shot, trained_sib
from sibrepro.studies.query_size import experiment
from sibrepro.studies.query_size.experiment import FRESH, QUERY_SIZE, RESCALED, generalisation, losses

CLASSES, PER_CLASS, DIM = 6, 60, 5


@pytest.fixture
def bank():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, 1, DIM, generator=generator)
    features = (centres + 0.5 * torch.randn(CLASSES, PER_CLASS, DIM, generator=generator)).flatten(0, 1)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    names = tuple(f"class {c}" for c in range(CLASSES))
    return Features(features, features.new_empty(0, *features.shape), labels, names, "")


def test_losses_on_seen_and_fresh_queries_are_those_of_a_loop(bank):
    p = FewShot(ways=3, shots=2, queries=4, test_episodes=7)
    sib = SIB(3, DIM, 2, 1e-1, seed=1).double()
    bank = dataclasses.replace(bank, features=bank.features.double())
    seen, fresh = losses(sib, bank, p, batch=3)
    assert seen.shape == (7, 12)
    assert fresh.shape == (7, 3 * FRESH)

    drawn = EpisodeSampler(bank.labels, 3, 2, 4 + FRESH, 2_000_000 + SPLITS.index("test")).sample(0, 7)
    for t in range(7):
        query, labels = bank.features[drawn.query[t]], drawn.query_labels[t]
        own = torch.cat([torch.arange(c * (4 + FRESH), c * (4 + FRESH) + 4) for c in range(3)])
        others = torch.tensor([i for i in range(len(query)) if i not in set(own.tolist())])
        support = (bank.features[drawn.support[t]][None], drawn.support_labels[t][None])
        theta = sib.trajectory(*support, query[own][None])[-1, 0]
        for rows, got in ((own, seen[t]), (others, fresh[t])):
            cosine = torch.cosine_similarity(query[rows][:, None], theta[None], dim=-1)
            probability = (sib.scale * (sib.bias + cosine)).softmax(-1).tolist()
            expected = [-math.log(probability[i][labels[rows[i]]]) for i in range(len(rows))]
            assert got.tolist() == pytest.approx(expected, rel=1e-9)


def test_fresh_queries_are_never_those_that_w_was_inferred_from(bank):
    drawn = EpisodeSampler(bank.labels, 3, 2, 4 + FRESH, 2_000_000 + SPLITS.index("test")).sample(0, 50)
    assert all(len(set(task.tolist())) == 3 * (4 + FRESH) for task in drawn.query)


def test_the_subgaussian_estimates_are_ordered_and_reach_from_variance_to_hoeffding(bank):
    p = FewShot(ways=3, shots=1, queries=4, test_episodes=40)
    sib = SIB(3, DIM, 1, 1e-2)
    found = generalisation(sib, bank, p)
    seen, fresh = losses(sib, bank, p)
    assert found["gap"] == pytest.approx((fresh.mean(1) - seen.mean(1)).mean().item())
    assert found["risk"] == pytest.approx(seen.mean().item())
    assert fresh.var(1, correction=0).mean().sqrt() <= found["sigma"] + 1e-12
    assert found["sigma"] <= found["sigma_worst"] <= found["sigma_bound"]
    assert fresh.max() - fresh.min() <= 2 * found["sigma_bound"]


def test_with_no_step_w_ignores_the_queries_and_does_not_overfit_them(bank):
    p = FewShot(ways=3, shots=1, queries=10, test_episodes=400)
    found = generalisation(SIB(3, DIM, 0), bank, p)
    assert abs(found["gap"]) < 2 * found["gap_ci95"]


@pytest.mark.thorough
def test_a_trained_model_with_15_queries_is_the_same_either_way_and_longer_steps_change_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(experiment, "FRESH", 3)
    noisy = few_shot_set(8, 20, noise=0.5)
    world = {"data": noisy, "network": untrained_network(tmp_path / "network.safetensors", noisy.images.shape[1])}
    small = FewShot(dataset="noise", eta=0.1, steps=20, val_episodes=10, test_episodes=30)
    usual, few = (few_shot(dataclasses.replace(small, queries=n), **world) for n in (15, 3))

    def test(tester, trained):
        return tester.run(FEW_SHOT.settings_of(trained), trained=trained, **world)

    tested = test(QUERY_SIZE, usual)
    for split in ("val", "test"):
        assert tested.metrics[f"{split}/usual"] == tested.metrics[f"{split}/own"]
    assert tested.metrics["test/usual"] == pytest.approx(usual.metrics["best/1shot"])
    assert test(RESCALED, usual).metrics["test"] == pytest.approx(usual.metrics["best/1shot"])

    shorter = test(RESCALED, few)
    model = trained_sib(few)
    model.eta *= 3 / 15
    bank = feature_bank(world["network"], noisy, "test")
    fixed = tasks(dataclasses.replace(small, queries=15), bank, "test")
    assert shorter.metrics["test"] == pytest.approx(100 * evaluate(model, bank.features, fixed).mean)
    assert shorter.provenance["data"]["trained"] == few.files.checkpoint_hash("best")
    assert (shorter.arrays["test/usual"] != test(QUERY_SIZE, few).arrays["test/usual"]).any()
