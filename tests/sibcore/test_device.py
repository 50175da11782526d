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


@pytest.mark.parametrize(("fast", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_where_the_processor_multiplies_it_and_a_precision_by_name_stays(monkeypatch, fast, expected):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast)
    cpu = torch.device("cpu")
    assert device.pick_precision("auto", cpu) == expected
    assert [device.pick_precision(name, cpu) for name in ("float32", "bfloat16")] == ["float32", "bfloat16"]
    assert device.pick_precision("auto", torch.device("mps")) == "float32"


def test_products_have_the_precision_that_was_asked_for():
    x = torch.eye(3)
    for name, kind in {"float32": torch.float32, "bfloat16": torch.bfloat16}.items():
        with device.autocast(name, x.device):
            assert (x @ x).dtype == kind
