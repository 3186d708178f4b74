"""How a learner computes: on which device, at which precision, with how many processes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from podnet.engine.team import ALONE, Team, synchronise
from podnet.errors import ConfigError
from podnet.nets.kernels import replace_convolutions
from podnet.nets.network import Network, channels_last, compile_backbone

Precision = Literal["32", "tf32", "bf16-mixed", "16-mixed"]
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # for convolutions; everything else is float32


@dataclass(frozen=True)
class Compute:
    """Device, precision and processes: they change the speed of a learner, and its results only by rounding."""

    device: str = "cpu"
    compile: bool = False
    precision: Precision = "32"
    team: Team = ALONE
    sync_batchnorm: bool = True  # statistics over whole batches; False: each process uses its own share

    def place(self, network: Network, batch_size: int) -> Network:
        """The network on the device, in the fastest memory layout and form for it."""
        network.mixed = MIXED.get(self.precision)
        if self.sync_batchnorm and self.team.size > 1:
            synchronise(network, torch.device(self.device))
        network = channels_last(network.to(self.device))
        if torch.device(self.device).type == "cpu":
            replace_convolutions(network)
        if self.compile:
            compile_backbone(network, len(self.team.rows(batch_size)))
        return network

    def scaler(self) -> torch.amp.GradScaler:
        """Scales the loss so that small gradients survive float16; disabled for other precisions."""
        return torch.amp.GradScaler(torch.device(self.device).type, enabled=self.precision == "16-mixed")


PLAIN = Compute()


def with_threads(threads: int | None) -> AbstractContextManager[None]:
    """Compute with this many CPU threads; None: torch's choice."""
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; it must be at least 1.")
    return torch_settings(threads or torch.get_num_threads(), tf32=False)


@contextmanager
def torch_settings(threads: int, tf32: bool) -> Iterator[None]:
    """Set torch's process-wide settings (CPU threads, float32 precision on GPUs); restore them at the end."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    _set(threads, "high" if tf32 else "highest", tf32)
    try:
        yield
    finally:
        _set(*before)


def _set(threads: int, matmul_precision: str, cudnn_tf32: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(matmul_precision)
    torch.backends.cudnn.allow_tf32 = cudnn_tf32


def choose_device(name: str) -> str:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} is not available on this machine; cpu always works.") from error
    return name
