from __future__ import annotations

import itertools
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sibcore.files import write_tensors
from sibcore.vision.backbones import Averaged, backbone, feature_network, load_network


def wide_resnet_count(width: int = 10, blocks: int = 4) -> int:
    """Parameters of WRN-28-10 without a head: convolutions, shortcuts and two numbers per batch-norm channel."""
    total, before = 3 * 16 * 9, 16
    for after in (16 * width, 32 * width, 64 * width):
        total += before * after  # shortcut
        for _ in range(blocks):
            total += 9 * before * after + 9 * after * after + 2 * before + 2 * after
            before = after
    return total + 2 * before


@pytest.mark.parametrize(
    ("name", "size", "count", "dim"),
    [
        ("conv4-64", 32, 112_832, 256),
        ("conv4-64", 84, 112_832, 1600),
        ("conv4-128", 32, 260_544, 512),
        ("conv4-128", 84, 260_544, 3200),
        ("wrn-28-10", 32, wide_resnet_count(), 640),
        ("wrn-16-2", 84, wide_resnet_count(2, 2), 128),
        ("resnet18", 84, 11_176_512, 512),
    ],
)
def test_a_network_has_the_known_number_of_parameters_and_features(name, size, count, dim):
    network = backbone(name, size).eval()
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert network.dim == dim
    with torch.no_grad():
        assert network(torch.rand(1, 3, size, size)).shape == (1, dim)


def test_the_wide_resnet_has_36_47_million_parameters():
    assert round(wide_resnet_count() / 1e6, 2) == 36.47


@pytest.mark.parametrize(("size", "places"), [(32, 8), (84, 11)])
def test_the_wide_resnet_halves_twice_at_32_pixels_and_three_times_at_84(size, places):
    with torch.device("meta"):
        network = backbone("wrn-28-10", size)
        before_pooling = nn.Sequential(*network.children())[:-2](torch.empty(2, 3, size, size))
    assert before_pooling.shape == (2, 640, places, places)


def test_conv4_is_convolution_norm_relu_pool_four_times():
    network = backbone("conv4-64", 32).double().eval()
    tensors = network.state_dict()
    for norm in (layer for layer in network if isinstance(layer, nn.BatchNorm2d)):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    h = images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    for n in range(0, 16, 4):
        mean, var = tensors[f"{n + 1}.running_mean"], tensors[f"{n + 1}.running_var"]
        h = F.conv2d(F.pad(h, (1, 1, 1, 1)), tensors[f"{n}.weight"])
        h = (h - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        h = h.clamp(min=0).unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
    assert torch.allclose(network(images), h.flatten(1), atol=1e-12)


def test_averaged_features_are_means_over_both_mirror_images_and_four_places():
    f = feature_network("conv4-64", 48, (0, 0, 0), (1, 1, 1)).eval()
    images = torch.rand(2, 3, 48, 48)
    maps = [f(one).view(2, 64, 3, 3) for one in (images, images.flip(3))]
    features = Averaged(f)(images).view(2, 64, 2, 2)
    for y, x in itertools.product(range(2), range(2)):
        around = [part[:, :, y + dy, x + dx] for part in maps for dy in (0, 1) for dx in (0, 1)]
        torch.testing.assert_close(features[:, :, y, x], sum(around) / 8)
    torch.testing.assert_close(Averaged(f)(images.flip(3)), Averaged(f)(images))
    with pytest.raises(ValueError, match="Conv-4 alone"):
        Averaged(feature_network("wrn-16-2", 32, (0, 0, 0), (1, 1, 1)))


def test_a_network_comes_back_from_its_file_with_its_normalisation(tmp_path):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    network = feature_network("conv4-64", 32, mean, std)
    images = torch.rand(8, 3, 32, 32)
    network(images)  # moves the running statistics
    network.eval()
    write_tensors(
        tmp_path / "f.safetensors", network.state_dict(), {"backbone": "conv4-64", "image_size": 32, "epoch": 3}
    )
    loaded, about = load_network(tmp_path / "f.safetensors")
    assert about["epoch"] == 3
    assert torch.equal(loaded(images), network(images))
    by_hand = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert torch.equal(loaded(images), network.backbone(by_hand))
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_damaged_file_is_an_error_that_says_so(tmp_path):
    path = tmp_path / "f.safetensors"
    network = feature_network("conv4-64", 32, (0, 0, 0), (1, 1, 1))
    write_tensors(path, network.state_dict(), {"backbone": "conv4-64"})
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="damaged"):
        load_network(path)


def test_an_unknown_name_or_tiny_image_is_an_error():
    with pytest.raises(ValueError, match="conv4-64, conv4-128"):
        backbone("conv5", 32)
    with pytest.raises(ValueError, match="at least 16"):
        backbone("conv4-64", 8)


def test_asking_for_weights_that_do_not_exist_is_an_error():
    with pytest.raises(ValueError, match=r"sibcore\.vision\.pretrain"):
        backbone("conv4-64", 32, pretrained=True)


def test_a_missing_package_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r"pip install 'sibcore\[images\]'"):
        backbone("efficientnet-lite0", 224)


def test_efficientnet_lite0_gives_1280_features():
    pytest.importorskip("efficientnet_lite_pytorch")
    network = backbone("efficientnet-lite0", 96).eval()
    assert sum(parameter.numel() for parameter in network.parameters()) == 3_371_008
    assert network(torch.rand(1, 3, 96, 96)).shape == (1, network.dim) == (1, 1280)
