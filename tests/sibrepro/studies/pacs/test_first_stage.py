from __future__ import annotations

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from sibcore.datasets.base import ImageSet
from sibcore.datasets.pacs import DOMAINS
from sibrepro.studies.pacs import banks, experiment, first_stage, plan, rotations, second_stage
from sibrepro.studies.pacs.first_stage import FineTuned, split_rows
from sibrepro.studies.pacs.plan import StagesNotebook

pytestmark = pytest.mark.thorough

IMAGES, CLASSES = 30, ("dog", "horse", "house")


def made(seed: int = 0) -> ImageSet:
    """Four small domains, whose classes differ in their colours."""
    generator = np.random.default_rng(seed)
    labels, domains = np.arange(4 * IMAGES) % 3, np.repeat(np.arange(4), IMAGES)
    images = generator.integers(0, 120, (4 * IMAGES, 16, 16, 3))
    images[np.arange(len(labels)), :, :, labels] += 100 + 10 * domains[:, None, None]
    splits = {"all": CLASSES}
    return ImageSet("pacs", images.astype(np.uint8), labels, CLASSES, splits, f"made {seed}", domains, DOMAINS)


def tiny(name: str, size: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backbone = nn.Sequential(*layers)
    backbone.dim = 6
    return nn.Sequential(OrderedDict(normalise=nn.Identity(), backbone=backbone)).eval()


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    for module in (first_stage, experiment, rotations):
        monkeypatch.setattr(module, "imagenet_network", tiny)
    for module in (plan.pacs, first_stage.pacs, experiment.pacs):
        monkeypatch.setattr(module, "load", lambda size: made())
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))


def test_sources_held_out_images_and_other_domains_do_not_overlap():
    data = made()
    learn, held_out, others = split_rows(FineTuned(without="cartoon+sketch"), data)
    assert sorted(torch.cat([*learn, *held_out, *others.values()]).tolist()) == list(range(4 * IMAGES))
    assert {data.domain_names[d] for d in data.domains[torch.cat(learn)]} == {"art_painting", "photo"}
    assert list(others) == ["cartoon", "sketch"]
    with pytest.raises(ValueError, match="no domain 'video': expected one of art_painting"):
        split_rows(FineTuned(without="video"), data)


def test_labels_of_the_target_change_no_weight_and_no_feature():
    data = made()
    labels = data.labels.copy()
    labels[data.domains == 3] = np.roll(labels[data.domains == 3], 1)
    mixed = dataclasses.replace(data, labels=labels, sha256="mixed")
    p = FineTuned(without="sketch", steps=4, batch=4, turned=2)
    found = []
    for one in (data, mixed):
        record = first_stage.first_stage(p, one)
        found.append((record, banks.read_tensors(record.files.path(first_stage.FEATURES))[0]))
    (first, tensors), (second, others) = found
    assert tensors.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in tensors.items())
    assert first.metrics["held_out"] == second.metrics["held_out"]
    assert first.metrics["sketch"] != second.metrics["sketch"]
    assert np.array_equal(first.arrays["loss"], second.arrays["loss"])


def test_what_comes_with_the_project_is_what_the_networks_said(tmp_path):
    data = made()
    settings = [
        FineTuned(without="sketch", steps=2, batch=4, turned=2),
        FineTuned(without="cartoon+sketch", steps=2, batch=4),
    ]
    records = [first_stage.first_stage(p, data) for p in settings]
    plain = rotations.rotations(data, "tiny", cache=tmp_path)
    banks.make(records, data, plain, dim=6)
    banks.load.cache_clear()
    there, whole = banks.load(), banks.assemble(records, data, plain)
    banks.load.cache_clear()
    assert there.networks.keys() == whole.networks.keys() == {"sketch Rot 0", "cartoon+sketch source-only 0"}
    assert torch.equal(there.labels, whole.labels)
    for name, network in whole.networks.items():
        other = there.networks[name]
        assert torch.equal(network.rows, other.rows)
        assert torch.equal(network.part, other.part)
        assert torch.allclose(network.features @ network.features.T, other.features @ other.features.T, atol=0.03)
        assert network.own.keys() == other.own.keys()
        assert network.rotated.keys() == other.rotated.keys()
    before, after = (bank.imagenet.flatten(0, 1) for bank in (whole, there))
    assert torch.allclose(after @ after.T, before @ before.T, atol=0.03)
    rotated = there.networks["sketch Rot 0"].rotated
    assert {name: [*values.shape] for name, values in rotated.items()} == {
        "held_out": [3, 9, 6],
        "sketch": [3, IMAGES, 6],
    }


def test_the_papers_protocol_runs_from_images_in_two_stages_and_in_one(monkeypatch):
    """Its first 20 steps, with a tiny network in place of ResNet-18."""
    monkeypatch.setattr(second_stage, "SIZES", (8,))
    p = StagesNotebook(
        networks="images",
        backbone="resnet18",
        size=16,
        first_steps=20,
        first_batch=8,
        targets="photo",
        K=[0, 1],
        steps=20,
        jointly=True,
    )
    found = plan.run(p)
    kinds = [(r.params.get("network") or r.params["method"], r.params["K"]) for r in found]
    assert kinds == [
        ("source-only", 0),
        ("Rot", 0),
        ("Rot", 1),
        *(("source-only", 0), ("Rot", 0), ("SIB", 3), ("SIB-Rot", 0), ("SIB-Rot", 1)),
    ]
    for record in found:
        assert len(record.arrays["predicted"]) == IMAGES
        assert record.metrics["accuracy"] > 40, record.params
