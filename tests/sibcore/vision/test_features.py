from __future__ import annotations

import pytest
import torch
from tiny_images import tiny_set

from sibcore.files import write_tensors
from sibcore.seeds import combine
from sibcore.vision import features
from sibcore.vision.augment import augment, draw
from sibcore.vision.backbones import feature_network, load_network
from sibcore.vision.features import extract, feature_bank

CPU = torch.device("cpu")


@pytest.fixture
def network(tmp_path):
    return make_network(tmp_path / "f.safetensors", seed=0)


def make_network(path, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = feature_network("conv4-64", 16, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    write_tensors(path, network.state_dict(), {"backbone": "conv4-64", "image_size": 16})
    return path


def test_features_are_those_of_the_frozen_network_in_the_order_of_the_split(network, tmp_path):
    data = tiny_set()
    bank = feature_bank(network, data, "val", device=CPU, cache=tmp_path)
    f, _ = load_network(network)
    assert bank.features.shape == (100, 64)
    assert bank.features.dtype == torch.float32
    assert bank.classes == data.splits["val"]
    for number, row in enumerate(data.rows("val")):
        image = torch.tensor(data.images[row]).permute(2, 0, 1)[None] / 255
        assert torch.allclose(bank.features[number], f(image)[0], atol=1e-5)
        assert bank.classes[bank.labels[number]] == data.classes[data.labels[row]]


def test_averaged_features_are_a_bank_of_their_own(network, tmp_path):
    data = tiny_set()
    plain, averaged = (
        feature_bank(network, data, "val", device=CPU, cache=tmp_path, averaged=a) for a in (False, True)
    )
    images = torch.tensor(data.images[data.rows("val")]).permute(0, 3, 1, 2) / 255
    f, _ = load_network(network)
    torch.testing.assert_close(averaged.features, (f(images) + f(images.flip(3))) / 2)  # one place: 16 pixels
    assert plain.sha256 != averaged.sha256
    assert feature_bank(network, data, "val", device=CPU, cache=tmp_path).sha256 == plain.sha256


def test_features_in_bfloat16_are_close_and_a_bank_of_their_own(network, tmp_path):
    data = tiny_set()
    banks = {
        precision: feature_bank(network, data, "val", device=CPU, cache=tmp_path, precision=precision)
        for precision in ("float32", "bfloat16")
    }
    exact, short = banks["float32"].features, banks["bfloat16"].features
    assert short.dtype == torch.float32
    assert 0 < (short - exact).abs().max() < 0.05 * exact.abs().max()  # bfloat16 has 8 bits of precision


def test_extraction_in_batches_changes_nothing_and_leaves_the_mode_alone(network, monkeypatch):
    f, _ = load_network(network)
    images = torch.tensor(tiny_set().images)
    f.train()
    whole = extract(f, images)
    monkeypatch.setattr(features, "BATCH", 7)
    assert torch.allclose(extract(f, images), whole, atol=1e-5)
    assert f.training


def test_the_second_call_computes_nothing(network, tmp_path, monkeypatch):
    data = tiny_set()
    first = feature_bank(network, data, "train", views=2, device=CPU, cache=tmp_path)
    monkeypatch.setattr(features, "_compute", None)
    again = feature_bank(network, data, "train", views=2, device=CPU, cache=tmp_path)
    assert torch.equal(again.features, first.features)
    assert torch.equal(again.views, first.views)
    assert again.sha256 == first.sha256


def test_another_network_other_images_or_another_number_of_views_is_another_file(network, tmp_path):
    data = tiny_set()
    first = feature_bank(network, data, "train", views=1, device=CPU, cache=tmp_path)
    other_network = make_network(tmp_path / "g.safetensors", seed=1)
    for other in (
        feature_bank(other_network, data, "train", views=1, device=CPU, cache=tmp_path),
        feature_bank(network, tiny_set(seed=1), "train", views=1, device=CPU, cache=tmp_path),
        feature_bank(network, data, "train", views=2, device=CPU, cache=tmp_path),
    ):
        assert other.sha256 != first.sha256
    assert len(list((tmp_path / "features").iterdir())) == 4


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b[:500], lambda b: b"", lambda b: b.replace(b"about", b"ab_ut")],
    ids=["bit", "cut", "empty", "header"],
)
def test_a_damaged_file_is_made_again(network, tmp_path, damage):
    data = tiny_set()
    first = feature_bank(network, data, "val", device=CPU, cache=tmp_path)
    (path,) = (tmp_path / "features").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert torch.equal(feature_bank(network, data, "val", device=CPU, cache=tmp_path).features, first.features)
    assert path.read_bytes() == whole


def test_a_file_in_the_wrong_place_is_not_believed(network, tmp_path):
    data = tiny_set()
    first = feature_bank(network, data, "val", device=CPU, cache=tmp_path)
    (path,) = (tmp_path / "features").iterdir()
    other = make_network(tmp_path / "g.safetensors", seed=1)
    feature_bank(other, data, "val", device=CPU, cache=tmp_path / "other")
    path.write_bytes(next((tmp_path / "other" / "features").iterdir()).read_bytes())
    assert torch.equal(feature_bank(network, data, "val", device=CPU, cache=tmp_path).features, first.features)


def test_views_are_features_of_augmented_images(network, tmp_path):
    data = tiny_set()
    bank = feature_bank(network, data, "val", views=2, device=CPU, cache=tmp_path)
    assert bank.views.shape == (2, 100, 64)
    f, _ = load_network(network)
    images = torch.tensor(data.images[data.rows("val")])
    for number in range(2):
        numbers = draw(100, 2, 0.4, torch.Generator().manual_seed(combine(0, number)))
        assert torch.allclose(bank.views[number], f(augment(images, numbers, 2)), atol=1e-5)
    assert not torch.allclose(bank.views[0], bank.views[1], atol=1e-2)


def test_a_network_that_gives_nan_is_an_error_that_names_the_class_and_writes_nothing(network, tmp_path):
    broken, about = load_network(network)
    broken.backbone[1].running_mean[:] = torch.nan
    write_tensors(network, broken.state_dict(), about)
    with pytest.raises(ValueError, match=r"NaN.*class 6"):
        feature_bank(network, tiny_set(), "val", device=CPU, cache=tmp_path)
    assert not (tmp_path / "features").exists()
