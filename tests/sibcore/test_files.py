from __future__ import annotations

import errno
import os

import pytest
import torch

from sibcore import files as checkpoints


def trained(seed: int) -> tuple[torch.nn.Linear, torch.optim.SGD]:
    """A small model after two steps of momentum SGD."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def test_tensors_and_their_description_come_back(tmp_path):
    tensors = {"a": torch.arange(3.0), "b": torch.ones(2, 2, dtype=torch.int64).T}
    checkpoints.write_tensors(tmp_path / "file", tensors, {"epoch": 3, "history": [{"loss": 0.1}]})
    read, about = checkpoints.read_tensors(tmp_path / "file")
    assert about == {"epoch": 3, "history": [{"loss": 0.1}]}
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="file is damaged"):
        checkpoints.read_tensors(tmp_path / "file")


def test_a_resumed_training_takes_the_same_next_step(tmp_path):
    model, optimizer = trained(seed=0)
    state = checkpoints.weights_of(model) | checkpoints.momenta_of(model, optimizer)
    checkpoints.write_tensors(tmp_path / "file", state, {"recipe": 1, "epoch": 2})
    other, its_optimizer = trained(seed=1)
    about = checkpoints.resume(tmp_path / "file", other, its_optimizer, {"recipe": 1, "epoch": 0}, same=["recipe"])
    assert about["epoch"] == 2
    x = torch.randn(4, 3)
    for m, o in ((model, optimizer), (other, its_optimizer)):
        o.zero_grad()
        m(x).square().sum().backward()
        o.step()
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


def test_without_a_checkpoint_the_fresh_description_is_returned(tmp_path):
    model, optimizer = trained(seed=0)
    fresh = {"recipe": 1}
    assert checkpoints.resume(tmp_path / "none", model, optimizer, fresh, same=["recipe"]) is fresh


def test_another_run_s_checkpoint_is_refused_with_both_settings_named(tmp_path):
    model, optimizer = trained(seed=0)
    checkpoints.write_tensors(tmp_path / "file", checkpoints.weights_of(model), {"recipe": "theirs"})
    with pytest.raises(ValueError, match=r"another run: its recipe is theirs, but now ours"):
        checkpoints.resume(tmp_path / "file", model, optimizer, {"recipe": "ours"}, same=["recipe"])


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_who_may_read_a_file_is_up_to_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        checkpoints.write_atomically(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        checkpoints.write_atomically(tmp_path / "file", b"content")
    assert not list(tmp_path.iterdir())
