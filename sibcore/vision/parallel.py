"""Data-parallel training under `torchrun`, such that N processes compute what one process would.

Each process takes its part of every batch. The mean of their gradients is the gradient of the whole batch only if batch
normalisation uses the statistics of the whole batch, too. torch's SyncBatchNorm does so on GPUs alone, so there is a
`GlobalBatchNorm2d` here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation over the batches of all processes, which have to be of the same size."""

    @classmethod
    def like(cls, norm: nn.BatchNorm2d) -> GlobalBatchNorm2d:
        """Return one that shares the parameters and buffers of a batch norm of torch."""
        made = cls(norm.num_features, norm.eps, norm.momentum)
        made.weight, made.bias = norm.weight, norm.bias
        made.running_mean, made.running_var = norm.running_mean, norm.running_var
        made.num_batches_tracked = norm.num_batches_tracked
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [B, C, H, W]; in evaluation mode, by the running statistics."""
        if not self.training:
            return super().forward(x)
        count = x.numel() // x.shape[1] * world()
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        # `all_reduce` sums over processes, also the gradients: each summand takes part in the loss of every process
        mean = all_reduce(wide.sum((0, 2, 3))) / count
        centred = wide - mean[:, None, None]
        variance = all_reduce(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)  # kept unbiased, as torch does
        gain = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * gain[:, None, None] + self.bias[:, None, None]).to(x.dtype)


def world() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def mean(x: Tensor) -> Tensor:
    """Return the mean of every process's tensor, without gradients."""
    total = x.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total / world()


def share(batch: int) -> slice:
    """Return the part of a batch that is this process's, or raise a ValueError if it cannot be divided equally."""
    if batch % world():
        raise ValueError(f"a batch of {batch} cannot be shared equally by {world()} processes: choose a multiple")
    part = batch // world()
    return slice(rank() * part, (rank() + 1) * part)


def distributed(module: nn.Module) -> nn.Module:
    """Return `module` itself in a single process, else a wrapper that averages gradients over all processes.

    Its batch norms are replaced in place by global ones, which share their parameters.
    """
    if world() == 1:
        return module
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, GlobalBatchNorm2d.like(child))
    return DistributedDataParallel(module)


@contextlib.contextmanager
def processes(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes inside the block if `torchrun` started this one.

    Args:
        device: the device of a single process.

    Yields:
        The device of this process: with CUDA, each process on a machine has its own.
    """
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
