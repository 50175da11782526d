"""The sizing benchmark counts what can be counted by hand."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from sibrepro import paths

sys.path.insert(0, str(paths.PACKAGE.parents[1] / "benchmarks"))
import sizing


def test_a_convolution_has_two_flops_for_each_weight_and_place():
    layer = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    images = torch.zeros(2, 3, 32, 32)
    by_hand = 2 * 2 * (32 * 32) * (3 * 3 * 3) * 64
    with torch.no_grad():
        assert sizing.flops(lambda: layer(images)) == by_hand
    # backward: the same for the weights; none for the images, which need no gradient
    assert sizing.flops(lambda: layer(images).sum().backward()) == 2 * by_hand


@pytest.mark.parametrize(("pixels", "sides"), [(32, (32, 16, 8, 4)), (84, (84, 42, 21, 10))])
def test_conv_4_64_is_the_sum_of_its_four_convolutions(pixels, sides):
    channels = (3, 64, 64, 64)
    by_hand = sum(2 * side**2 * 9 * before * 64 for side, before in zip(sides, channels, strict=True))
    assert sizing.flops(sizing.network_work("conv4-64", pixels, 1, train=False, device="meta")) == by_hand


def test_more_gpus_help_until_the_longest_run_is_the_floor():
    short = sizing.Stage(1, "many short", runs=10, items=3600, flops=0, cpu_seconds=0, utilisation=1, least=1.0)
    long = sizing.Stage(1, "one long", runs=1, items=4 * 3600, flops=0, cpu_seconds=0, utilisation=1, least=1.0)
    after = sizing.Stage(2, "afterwards", runs=2, items=3600, flops=0, cpu_seconds=0, utilisation=1, least=1.0)
    hours = [sizing.wall_hours([short, long, after], gpus) for gpus in (1, 2, 64)]
    assert hours == pytest.approx([14 + 2, 7 + 1, 4 + 1])


def test_gpu_time_is_flops_over_peak_and_utilisation():
    stage = sizing.Stage(1, "work", runs=2, items=3600, flops=sizing.PEAK / 2, cpu_seconds=0, utilisation=0.5)
    assert stage.run_hours == pytest.approx(1)
    assert stage.gpu_hours == pytest.approx(2)


@pytest.mark.thorough
def test_every_stage_of_the_paper_profile_is_counted(monkeypatch):
    product = torch.ones(2, 2)
    monkeypatch.setattr(sizing, "sib_work", lambda *_: lambda: product @ product)  # counting SIB's own takes seconds
    found = {stage.name: stage for stage in sizing.stages(measure=False)}
    assert found["meta-training, Table 1"].runs == 2 * 3 * 2 * 4 * 3  # data sets, networks, shots, K, seeds
    assert found["pretraining mini-imagenet wrn-28-10"].items == 38_400 * 50
    assert found["PACS, resnet18"].runs == 36
    assert found["evaluation, Table 1"].flops == 2 * 2**3
    assert all(stage.flops > 0 for stage in found.values())
