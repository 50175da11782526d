from __future__ import annotations

import pytest
import torch

from sibcore import device


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_cuda_comes_before_mps_before_cpu(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert device.pick_device().type == expected


def test_the_environment_variable_overrides_and_an_argument_overrides_both(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("SIB_DEVICE", "cuda:1")
    assert device.pick_device() == torch.device("cuda:1")
    assert device.pick_device("cpu") == torch.device("cpu")


def test_a_device_that_is_none_or_not_there_is_refused_with_what_is_usable(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="expected cpu, cuda"):
        device.pick_device("gpu")
    with pytest.raises(ValueError, match="usable are cpu"):
        device.pick_device("cuda")


def test_a_cuda_device_number_beyond_the_last_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="has 1 CUDA device"):
        device.pick_device("cuda:3")


def test_the_number_of_threads_is_set_inside_the_block_and_restored_after_it_even_on_an_error():
    before, inside = torch.get_num_threads(), []

    def fail():
        with device.threads(before + 1):
            inside.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (inside, torch.get_num_threads()) == ([before + 1], before)
