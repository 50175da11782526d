from __future__ import annotations

import errno
import os

import pytest
import torch

from sibcore import files as checkpoints


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


def test_weights_come_back_into_a_model_of_the_same_kind(tmp_path):
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    checkpoints.write_tensors(tmp_path / "file", checkpoints.weights_of(model), {})
    checkpoints.put_weights(other, checkpoints.read_tensors(tmp_path / "file")[0])
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


def test_another_run_s_checkpoint_is_refused_with_both_settings_named(tmp_path):
    checkpoints.check_same(tmp_path, {"recipe": "theirs", "epoch": 2}, {"recipe": "theirs"})
    with pytest.raises(ValueError, match=r"another run: its recipe is theirs, but now ours"):
        checkpoints.check_same(tmp_path, {"recipe": "theirs"}, {"recipe": "ours"})


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
