from __future__ import annotations

import os
import socket

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_images import tiny_set
from torch import multiprocessing

from sibcore.vision import parallel
from sibcore.vision.features import split_tensors
from sibcore.vision.pretrain import Recipe, make_model, train_epoch

pytestmark = pytest.mark.exhaustive


def one_step(folder: str, name: str) -> None:
    """Train one batch in float64 and store gradients, running statistics, loss and accuracy."""
    data = tiny_set()
    recipe = Recipe(epochs=1, batch=60)
    model = make_model(data, recipe).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.0, 0.9)
    images, labels = split_tensors(data, "train")
    trained = parallel.distributed(model)
    row = train_epoch(trained, optimizer, images[:60], labels[:60], recipe, epoch=0)
    found = {f"gradient {key}": parameter.grad for key, parameter in model.named_parameters()}
    found |= {key: torch.tensor(value) for key, value in row.items()}
    found |= {key: buffer for key, buffer in model.named_buffers() if "running" in key}
    save_file({key: value.contiguous() for key, value in found.items()}, f"{folder}/{name}")


def one_of_two(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    with parallel.processes(torch.device("cpu")):
        one_step(folder, f"rank {rank}")


def test_two_processes_give_the_same_gradient_as_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(one_of_two, (port, str(tmp_path)), nprocs=2)
    one_step(str(tmp_path), "alone")
    alone = load_file(tmp_path / "alone")
    for name in ("rank 0", "rank 1"):
        together = load_file(tmp_path / name)
        assert together.keys() == alone.keys()
        for key in alone:
            single = key in ("loss", "accuracy")  # these are added up in float32
            assert torch.allclose(together[key], alone[key], rtol=1e-6 if single else 1e-8, atol=1e-10), key


def test_a_batch_that_cannot_be_shared_equally_is_an_error(monkeypatch):
    monkeypatch.setattr(parallel, "world", lambda: 3)
    with pytest.raises(ValueError, match="batch of 128 cannot be shared equally by 3"):
        parallel.share(128)
