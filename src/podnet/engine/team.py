"""The processes of one run: each computes its share of every batch, and all hold the same state.

torch does the work: a launcher (`podnet.engine.launch`, or torchrun) starts the processes, gloo or NCCL connects them,
DistributedDataParallel averages gradients. A single process is a team of one and exchanges nothing.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from podnet.errors import ConfigError, PodnetError
from podnet.nets.exchange import exchange_batchnorm
from podnet.nets.normalisation import remember
from podnet.processes import cores, end_with, is_member

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """One of `size` processes. The main one (rank 0) writes and makes the decisions that are made once."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes on this machine
    local_size: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def cores(self) -> int:
        """This process's share of the machine's cores."""
        return max(1, cores() // self.local_size)

    def device(self, name: str) -> str:
        """The device of this process. With several GPUs each process has its own."""
        if name != "cuda" or self.size == 1:
            return name
        if self.local_size > torch.cuda.device_count():
            raise ConfigError(
                f"{self.local_size} processes, but this machine has {torch.cuda.device_count()} GPUs; "
                "set --devices to at most that number, or use --device cpu."
            )
        return f"cuda:{self.local_rank}"

    def rows(self, count: int) -> Tensor:
        """The images of a batch that this process handles: every `size`-th, or all if they are fewer than processes."""
        return torch.arange(count) if count < self.size else torch.arange(self.rank, count, self.size)

    def images(self, rows: int, count: int) -> float:
        """The weight of these rows of a batch, in images; over the team they sum up to the whole batch."""
        return rows / self.size if count < self.size else rows

    def gathered(self, own: Tensor) -> Tensor:
        """The rows of all processes, one process after the other."""
        if self.size == 1:
            return own
        kinds = self.collected((own.shape, own.dtype))
        shape, dtype = max(kinds, key=lambda kind: kind[0][0])  # a process without rows does not know their shape
        padded = torch.zeros(shape, dtype=dtype, device=own.device)
        if len(own):
            padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in kinds]
        dist.all_gather(parts, padded)
        return torch.cat([part[: own_shape[0]] for part, (own_shape, _) in zip(parts, kinds, strict=True)])

    def collected(self, own: T) -> list[T]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [own]
        given: list[Any] = [None] * self.size
        dist.all_gather_object(given, own)
        return given

    def summed(self, own: Tensor) -> Tensor:
        if self.size > 1:
            own = own.clone()
            dist.all_reduce(own)
        return own

    def from_main(self, make: Callable[[], T]) -> T:
        """The result of `make`, which is called in the main process only."""
        if self.size == 1:
            return make()
        box: list[Any] = [make() if self.is_main else None]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        made: T = box[0]
        return made

    def require_same(self, what: str, own: str) -> None:
        """Fail if the processes hold different values: then they do not read the same data."""
        given = self.collected(own)
        if differing := [rank for rank, other in enumerate(given) if other != given[0]]:
            raise PodnetError(
                f"process {differing[0]} does not have the same {what} as process 0 "
                f"({given[differing[0]][:12]}, not {given[0][:12]}); make sure that all machines read the same data."
            )

    @torch.no_grad()
    def copy_from_main(self, network: nn.Module) -> None:
        """Give every process the weights and buffers of the main one."""
        if self.size > 1:
            for tensor in network.state_dict().values():
                dist.broadcast(tensor, src=0)

    @torch.no_grad()
    def average_statistics(self, network: nn.Module) -> None:
        """Average the running statistics of BatchNorm in training mode over the processes."""
        training = [module for module in network.modules() if module.training]
        buffers = [b for module in training for b in module.buffers(recurse=False) if b.is_floating_point()]
        if self.size > 1 and buffers:
            means = self.summed(torch.cat([buffer.flatten() for buffer in buffers])) / self.size
            for buffer, mean in zip(buffers, means.split([buffer.numel() for buffer in buffers]), strict=True):
                buffer.copy_(mean.view_as(buffer))

    def wrapped(self, network: nn.Module) -> nn.Module:
        """The network with gradients averaged over the team. Choose the trained parameters before this call."""
        if self.size == 1:
            return network
        # The gradients of a penalty on the parameters may have another memory layout; then torch copies them.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        device = next(network.parameters()).device
        where = [device.index] if device.type == "cuda" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions of torch rename DistributedDataParallel
            # Buffers stay local: BatchNorm is synchronised, or its statistics are averaged every epoch.
            return DistributedDataParallel(network, where, broadcast_buffers=False, gradient_as_bucket_view=True)


ALONE = Team()


@contextmanager
def joined(device: str) -> Iterator[Team]:
    """Join the team that a launcher started; without a launcher, a team of one."""
    if not is_member():
        yield ALONE
        return
    rank, size, local_rank, local_size = (
        int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    team = Team(rank, size, local_rank, local_size or size)
    if device == "cuda":
        torch.cuda.set_device(team.device(device))
    end_with(os.getppid())
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        yield team
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise PodnetError(
            f"process {rank} lost contact with another process ({str(error).splitlines()[0]})."
        ) from error
    dist.destroy_process_group()  # not after an error: other processes may never get here


class SynchronisedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm with the statistics of the whole batch, shared by all processes. torch's own needs GPUs."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        variance, mean = torch.var_mean(x.to(self.weight.dtype), (0, 2, 3), correction=0)
        own = torch.cat([mean.new_tensor([x.numel() // x.shape[1]]), mean, variance])
        counts, means, variances = _gathered(own).split([1, len(mean), len(mean)], dim=1)  # one row per process
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (counts * (variances + (means - mean).square())).sum(0) / count
        remember(self, mean, variance, count)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        out: Tensor = x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
        return out.to(x.dtype)


def _gathered(own: Tensor) -> Tensor:
    """Stack the vectors of all processes, by summing tables that are zero except for one row each."""
    row = F.pad(own[None], (0, 0, dist.get_rank(), dist.get_world_size() - dist.get_rank() - 1))
    table: Tensor = _Sum.apply(row)  # type: ignore[no-untyped-call]
    return table


class _Sum(torch.autograd.Function):
    """The sum over all processes: of values forward, of gradients backward."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def synchronise(network: nn.Module, device: torch.device) -> None:
    """Let every BatchNorm of the network use whole batches; its parameters keep their names and values."""
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
    exchange_batchnorm(network, SynchronisedBatchNorm2d)
