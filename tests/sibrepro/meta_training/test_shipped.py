"""Features that come with the project: what compression costs, and that the published file is what it says."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_images import tiny_set, untrained_network

from sibcore import datasets
from sibcore.files import read_tensors, sha256
from sibcore.vision.backbones import load_network
from sibcore.vision.features import extract
from sibcore.zoo.banks import dequantise
from sibrepro.facts import Record
from sibrepro.meta_training import shipped
from sibrepro.meta_training.pretraining import PRETRAIN, Pretraining

FILE = shipped.file("cifar-fs", "conv4-64")
NETWORK = "backbone.safetensors"


def published_pretraining() -> Record:
    return PRETRAIN.published(Pretraining(dataset="cifar-fs", backbone="conv4-64"))


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(-10, 10))
def test_the_error_of_a_number_is_at_most_half_a_step_of_its_dimension(seed, spread, shift):
    features = spread * torch.randn(50, 4, generator=torch.Generator().manual_seed(seed)) + shift
    codes, low, step = shipped.quantise(features)
    error = (dequantise(codes, low, step) - features).abs()
    assert codes.dtype == torch.uint8
    assert (error <= step / 2 * (1 + 1e-3) + 1e-6 * abs(shift)).all()


def test_a_dimension_that_never_changes_is_kept_exactly():
    features = torch.tensor([[0.0, 7.5], [1.0, 7.5]])
    assert torch.equal(dequantise(*shipped.quantise(features)), features)


def test_what_is_made_is_found_again_split_by_split(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    data = tiny_set()
    network = untrained_network(tmp_path / "network.safetensors", data.images.shape[1])
    path = shipped.make(data, network)
    assert path == shipped.file(data.name, "conv4-64")

    about = shipped.about(data.name, "conv4-64")
    assert (about["data"], about["network"]) == (data.sha256, sha256(network))
    f, _ = load_network(network)
    for split, bank in shipped.load(data.name, "conv4-64").items():
        rows = data.rows(split)
        exact = extract(f, torch.from_numpy(data.images[rows]))
        assert bank.classes == data.splits[split]
        assert bank.labels.tolist() == data.split_labels(split).tolist()
        assert (bank.features - exact).abs().max() <= exact.abs().max() / shipped.LEVELS


def test_principal_directions_keep_the_inner_products_of_features_in_a_plane(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    data = tiny_set()
    network = untrained_network(tmp_path / "network.safetensors", data.images.shape[1])
    exact = shipped.load(data.name, "conv4-64") if shipped.make(data, network) else {}
    shipped.make(data, network, dim=60)  # of 64, of which few carry anything in an untrained network
    for split, bank in shipped.load(data.name, "conv4-64").items():
        assert bank.features.shape[1] == 60
        expected = exact[split].features @ exact[split].features.mT
        assert torch.allclose(bank.features @ bank.features.mT, expected, rtol=0.05, atol=0.05 * expected.abs().max())
    assert shipped.about(data.name, "conv4-64")["dim"] == 60


def test_features_that_do_not_come_with_the_project_are_an_error_that_says_what_to_do():
    with pytest.raises(FileNotFoundError, match="features='images'"):
        shipped.load("mini-imagenet", "wrn-28-10")


@pytest.mark.thorough
def test_the_published_features_are_those_of_the_published_network_and_small_enough():
    about, pretraining = shipped.about(), published_pretraining()
    assert sha256(pretraining.files.path(NETWORK)) == about["network"]
    assert pretraining.provenance["data"] == {"cifar-fs": about["data"]}
    assert FILE.stat().st_size <= 16_000_000
    banks = shipped.load()
    assert {split: len(bank.classes) for split, bank in banks.items()} == {"train": 64, "val": 16, "test": 20}
    assert all((bank.labels.bincount() == 600).all() for bank in banks.values())
    assert all(bank.features.isfinite().all() for bank in banks.values())


@pytest.mark.thorough
@pytest.mark.skipif(not os.environ.get("SIB_DATA"), reason="needs the images of CIFAR-FS in SIB_DATA")
def test_the_published_features_are_those_of_the_images():
    data = datasets.load("cifar-fs")
    assert data.sha256 == shipped.about()["data"]
    rows = data.rows("test")[::100]
    f, _ = load_network(published_pretraining().files.path(NETWORK))
    exact = extract(f, torch.from_numpy(data.images[rows]))
    ours = shipped.load()["test"].features[::100]
    step = read_tensors(FILE)[0]["step"]
    assert ((ours - exact).abs() <= 0.51 * step + 1e-4).all()


def test_the_directions_are_the_right_singular_vectors():
    features = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)) + 1
    expected = torch.linalg.svd(features)[2][:3]
    found = shipped.directions(features, 3).mT
    assert torch.allclose((found * expected).sum(1).abs(), torch.ones(3), atol=1e-4)
