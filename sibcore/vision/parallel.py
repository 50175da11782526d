"""Data-parallel training under `torchrun`, such that N processes compute what one process would.

Each process takes its part of every batch. Averaging the gradients gives those of the whole batch only if batch norm
uses the statistics of the whole batch too; torch's SyncBatchNorm does so on GPUs alone, hence `GlobalBatchNorm2d`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class SumOverProcesses(torch.autograd.Function):
    """The sum of every process's tensor. Each summand meets all processes' losses, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return SumOverProcesses.forward(ctx, gradient)


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over the batches of all processes, which have to be of the same size."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        count = x.numel() // x.shape[1] * world()
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean = SumOverProcesses.apply(wide.sum((0, 2, 3))) / count
        centred = wide - mean[:, None, None]
        variance = SumOverProcesses.apply(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)  # kept unbiased, as torch does
        gain = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * gain[:, None, None] + self.bias[:, None, None]).to(x.dtype)


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def mean(x: Tensor) -> Tensor:
    """The mean of every process's tensor, without gradients."""
    total = x.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total / world()


def share(batch: int) -> slice:
    """This process's part of a batch."""
    if batch % world():
        raise ValueError(f"a batch of {batch} cannot be shared equally by {world()} processes: choose a multiple")
    part = batch // world()
    return slice(rank() * part, (rank() + 1) * part)


def distributed(module: nn.Module) -> nn.Module:
    """`module` itself in a single process, else wrapped so that gradients are averaged over all processes.

    Its batch norms become global ones in place.
    """
    if world() == 1:
        return module
    for child in module.modules():
        if type(child) is nn.BatchNorm2d:
            child.__class__ = GlobalBatchNorm2d  # same parameters and buffers, another forward
    return DistributedDataParallel(module)


@contextlib.contextmanager
def processes(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes if `torchrun` started this one; gives the device to use."""
    if "LOCAL_RANK" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()
