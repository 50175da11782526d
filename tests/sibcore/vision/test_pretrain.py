from __future__ import annotations

import math

import pytest
import safetensors.torch
import torch
from tiny_images import tiny_set

from sibcore.files import write_tensors
from sibcore.vision.backbones import load_network
from sibcore.vision.features import split_tensors
from sibcore.vision.pretrain import (
    BACKBONE,
    CHECKPOINT,
    CosineHead,
    Recipe,
    Validation,
    begin_with,
    channel_statistics,
    make_model,
    one_cycle,
    pretrain,
    resume,
    turns_loss,
    with_turns,
)

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=4, batch=20, episodes=20)


def quiet(line: str) -> None:
    pass


def tensors(folder, name):
    return safetensors.torch.load_file(folder / name)


@pytest.mark.thorough
def test_an_interrupted_run_that_goes_on_ends_in_the_same_bits(tmp_path):
    data = tiny_set()
    whole = pretrain(data, RECIPE, tmp_path / "whole", CPU, quiet)

    def interrupt(line):
        if "epoch   2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(data, RECIPE, tmp_path / "parts", CPU, interrupt)
    parts = pretrain(data, RECIPE, tmp_path / "parts", CPU, quiet)
    assert parts["history"] == whole["history"]
    for name in (CHECKPOINT, BACKBONE):
        expected, found = tensors(tmp_path / "whole", name), tensors(tmp_path / "parts", name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_a_resumed_training_takes_the_same_next_step(tmp_path):
    x, fresh = torch.randn(4, 3), {"recipe": 1, "data": 2, "code": 3, "epoch": 0}
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, 0.9, nesterov=True) for model in models]

    def step(number):
        optimizers[number].zero_grad()
        models[number](x).square().sum().backward()
        optimizers[number].step()

    step(0)
    step(0)
    state = {f"model.{name}": tensor for name, tensor in models[0].state_dict().items()}
    for name, parameter in models[0].named_parameters():
        state[f"momentum.{name}"] = optimizers[0].state[parameter]["momentum_buffer"]
    assert resume(tmp_path / CHECKPOINT, models[1], optimizers[1], fresh) is fresh, "there is none yet"
    write_tensors(tmp_path / CHECKPOINT, state, fresh | {"epoch": 2})
    assert resume(tmp_path / CHECKPOINT, models[1], optimizers[1], fresh)["epoch"] == 2
    for number in (0, 1):
        step(number)
    assert torch.equal(models[0].weight, models[1].weight)
    assert torch.equal(models[0].bias, models[1].bias)


@pytest.mark.thorough
def test_small_images_first_then_the_full_size(tmp_path):
    data = tiny_set(size=32)
    recipe = Recipe(epochs=3, batch=20, episodes=20, small=16, small_epochs=2, precision="bfloat16")
    whole = pretrain(data, recipe, tmp_path / "whole", CPU, quiet)

    def interrupt(line):
        if "epoch   1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(data, recipe, tmp_path / "parts", CPU, interrupt)
    assert not (tmp_path / "parts" / BACKBONE).exists()  # only epochs of full size count
    parts = pretrain(data, recipe, tmp_path / "parts", CPU, quiet)
    assert parts["history"] == whole["history"]
    assert load_network(tmp_path / "parts" / BACKBONE)[1]["epoch"] == 3
    with pytest.raises(ValueError, match="small_epochs"):
        pretrain(data, Recipe(epochs=2, batch=20, small=16, small_epochs=2), tmp_path / "never", CPU, quiet)


@pytest.mark.thorough
def test_the_precision_auto_is_recorded_as_what_it_stood_for(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    data, recipe = tiny_set(), Recipe(epochs=1, batch=20, episodes=5, precision="auto")
    assert pretrain(data, recipe, tmp_path, CPU, quiet)["recipe"]["precision"] == "float32"


def test_every_fourth_image_is_turned_three_times_and_the_loss_knows_how_far():
    images = torch.rand(10, 3, 6, 6)
    batch = with_turns(images)
    assert torch.equal(batch[:10], images)
    for turn, part in enumerate(batch[10:].split(3), 1):
        for upright, turned in zip(images[::4], part, strict=True):
            for _ in range(turn):
                upright = upright.mT.flip(1)  # anticlockwise by 90 degrees
            assert torch.equal(turned, upright)
    logits = torch.zeros(19, 5 + 4)
    logits[[0, 4, 8], 5] = logits[10:13, 6] = logits[13:16, 7] = logits[16:, 8] = 100.0
    assert turns_loss(logits, 10) == 0
    assert turns_loss(logits.roll(1, 1), 10) > 50
    assert turns_loss(torch.zeros(19, 9), 10).item() == pytest.approx(math.log(4))


@pytest.mark.thorough
def test_another_network_can_be_the_start(tmp_path):
    data, recipe = tiny_set(), Recipe(epochs=1, batch=20, episodes=20, peak_lr=1e-12, weight_decay=0.0)
    pretrain(data, RECIPE, tmp_path / "first", CPU, quiet)
    start = tmp_path / "first" / BACKBONE
    pretrain(data, recipe, tmp_path / "second", CPU, quiet, start=start)
    first, second = (dict(load_network(path)[0].named_parameters()) for path in (start, tmp_path / "second" / BACKBONE))
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)
    with pytest.raises(ValueError, match="another run: its data"):
        pretrain(data, recipe, tmp_path / "second", CPU, quiet)


@pytest.mark.thorough
def test_a_wider_network_begins_with_the_layers_it_shares_and_keeps_the_frozen_one(tmp_path):
    data, recipe = tiny_set(), Recipe(backbone="conv4-128", epochs=2, batch=20, episodes=20, frozen=1)
    pretrain(data, RECIPE, tmp_path / "narrow", CPU, quiet)
    start = tmp_path / "narrow" / BACKBONE
    pretrain(data, recipe, tmp_path / "wide", CPU, quiet, start=start)
    narrow, wide = (load_network(path)[0].state_dict() for path in (start, tmp_path / "wide" / BACKBONE))
    lowest = [name for name in narrow if name.startswith(("backbone.0.", "backbone.1."))]
    assert len(lowest) == 6
    assert all(torch.equal(narrow[name], wide[name]) for name in lowest), "statistics of the norm among them"
    assert not torch.equal(narrow["backbone.4.weight"], wide["backbone.4.weight"])
    begun = make_model(data, recipe).f
    begin_with(begun, start)
    assert torch.equal(begun.state_dict()["backbone.4.weight"], narrow["backbone.4.weight"])
    with pytest.raises(ValueError, match="another kind of network"):
        begin_with(torch.nn.Linear(2, 3), start)


@pytest.mark.thorough
def test_rotations_are_learned_beside_the_classes(tmp_path):
    recipe = Recipe(epochs=2, batch=20, episodes=20, rotation=1.0)
    plain, turned = (pretrain(tiny_set(), r, tmp_path / str(r.rotation), CPU, quiet) for r in (RECIPE, recipe))
    assert (
        make_model(tiny_set(), recipe).head.weight.shape[0] == make_model(tiny_set(), RECIPE).head.weight.shape[0] + 4
    )
    assert turned["history"][0]["loss"] > plain["history"][0]["loss"] + 1  # by about log 4
    weights, _ = load_network(tmp_path / "1.0" / BACKBONE)
    assert weights(torch.rand(2, 3, 16, 16)).shape == (2, 64)


def test_the_cosine_head_sees_a_smaller_map_with_interpolated_weights():
    head = CosineHead(dim=2 * 4 * 4, classes=3, scale=10.0, channels=2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([1.0, -2.0]).repeat_interleave(16).expand(3, -1))  # constant maps
    small = torch.tensor([1.0, -2.0]).repeat_interleave(4)[None]
    torch.testing.assert_close(head(small), torch.full((1, 3), 10.0))


def test_a_seed_gives_the_same_numbers_again_and_another_seed_others(tmp_path):
    data = tiny_set()
    recipe = Recipe(epochs=1, batch=20, episodes=20)
    torch.manual_seed(1)
    first = pretrain(data, recipe, tmp_path / "a", CPU, quiet)["history"]
    torch.manual_seed(2)  # the global generator has no say
    assert pretrain(data, recipe, tmp_path / "b", CPU, quiet)["history"] == first
    other = Recipe(epochs=1, batch=20, episodes=20, seed=1)
    assert pretrain(data, other, tmp_path / "c", CPU, quiet)["history"] != first


@pytest.mark.thorough
def test_it_learns_what_can_be_learned(tmp_path):
    data = tiny_set(noise=0.3, images=40)
    history = pretrain(data, Recipe(epochs=6, batch=20, jitter=0.1, episodes=50), tmp_path, CPU, quiet)["history"]
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]
    assert history[-1]["accuracy"] > 0.7


def test_the_network_of_the_best_epoch_is_kept(tmp_path, monkeypatch):
    accuracies = iter([0.3, 0.5, 0.4, 0.2])
    networks = []

    def scripted(self, f, size):
        networks.append({name: tensor.clone() for name, tensor in f.state_dict().items()})
        return next(accuracies)

    monkeypatch.setattr(Validation, "__call__", scripted)
    pretrain(tiny_set(), RECIPE, tmp_path, CPU, quiet)
    kept, about = load_network(tmp_path / BACKBONE)
    assert about["epoch"] == 2
    assert all(torch.equal(tensor, networks[1][name]) for name, tensor in kept.state_dict().items())


def test_the_progress_line_tells_loss_accuracy_speed_and_time_left(tmp_path):
    lines = []
    pretrain(tiny_set(), Recipe(epochs=1, batch=20, episodes=5), tmp_path, CPU, lines.append)
    estimate, line = lines
    assert estimate.startswith("1 epochs of 120 images: about 0 min")
    for word in ("epoch   1/1", "loss", "accuracy", "val 1-shot", "images/s", "min left"):
        assert word in line


def test_a_folder_of_another_run_is_refused(tmp_path):
    data = tiny_set()
    pretrain(data, Recipe(epochs=1, batch=20, episodes=5), tmp_path, CPU, quiet)
    with pytest.raises(ValueError, match="another run: its recipe"):
        pretrain(data, Recipe(epochs=2, batch=20, episodes=5), tmp_path, CPU, quiet)
    with pytest.raises(ValueError, match="another run: its data"):
        pretrain(tiny_set(seed=1), Recipe(epochs=1, batch=20, episodes=5), tmp_path, CPU, quiet)


def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path):
    (tmp_path / CHECKPOINT).write_bytes(b"half a file")
    with pytest.raises(ValueError, match=CHECKPOINT):
        pretrain(tiny_set(), RECIPE, tmp_path, CPU, quiet)


def test_a_loss_that_is_no_number_stops_the_run_without_a_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError, match="smaller peak_lr"):
        pretrain(tiny_set(), Recipe(batch=20, episodes=5, peak_lr=1e38, scale=1e30), tmp_path, CPU, quiet)
    assert not (tmp_path / CHECKPOINT).exists()


def test_too_few_images_are_errors_that_say_how_many(tmp_path):
    with pytest.raises(ValueError, match="120 training images"):
        pretrain(tiny_set(), Recipe(batch=128), tmp_path, CPU, quiet)
    with pytest.raises(ValueError, match="'class 6' has 1 images"):
        pretrain(tiny_set(images=1), Recipe(batch=2), tmp_path, CPU, quiet)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"peak_lr": -1.0}, {"batch": 2.5}, {"epoch": 3}])
def test_an_impossible_recipe_is_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        Recipe(**wrong)


def test_one_cycle_rises_to_the_peak_and_falls_to_zero():
    recipe = Recipe(peak_lr=0.2, warm_up=0.25)
    rates = [one_cycle(step, 400, recipe) for step in range(401)]
    assert rates[0] == pytest.approx(0.2 / 25)
    assert rates[100] == pytest.approx(0.2)
    assert rates[50] == pytest.approx((0.2 + 0.2 / 25) / 2)
    assert rates[250] == pytest.approx(0.1)
    assert rates[400] == pytest.approx(0)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)


def test_the_cosine_head_gives_the_scaled_cosine():
    head = CosineHead(5, 3, scale=10.0).double()
    features = torch.randn(4, 5, dtype=torch.float64)
    for i in range(4):
        for j in range(3):
            f, w = features[i].tolist(), head.weight[j].tolist()
            cosine = sum(a * b for a, b in zip(f, w, strict=True)) / math.hypot(*f) / math.hypot(*w)
            assert head(features)[i, j].item() == pytest.approx(10 * cosine)


def test_validation_counts_queries_whose_nearest_support_is_of_their_class():
    data = tiny_set(noise=0.8)
    model = make_model(data, RECIPE)
    validation = Validation(data, RECIPE, CPU)
    tasks = validation.tasks
    images, _ = split_tensors(data, "val")
    model.eval()
    with torch.no_grad():
        features = model.f(images.permute(0, 3, 1, 2) / 255)
    right = total = 0
    for support, query, labels in zip(tasks.support, tasks.query, tasks.query_labels, strict=True):
        for row, label in zip(query, labels, strict=True):
            cosines = torch.cosine_similarity(features[row][None], features[support])
            right += int(cosines.argmax() == label)
            total += 1
    assert total == 20 * 5 * 15
    assert 0.2 < right / total < 1
    assert validation(model.f, 16) == pytest.approx(right / total, abs=2 / total)


def test_other_data_are_normalised_by_their_own_training_images():
    data = tiny_set()
    mean, std = channel_statistics(data)
    pixels = torch.tensor(data.images[data.rows("train")]).double().reshape(-1, 3) / 255
    assert mean == pytest.approx(pixels.mean(0).tolist())
    assert std == pytest.approx(pixels.std(0, correction=0).tolist())
