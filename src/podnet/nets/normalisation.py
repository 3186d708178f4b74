"""BatchNorm for torch.compile on a CPU, and the running statistics of all our BatchNorms.

For a sum over all pixels torch.compile generates loops that read the whole map once for every eight channels. Summed
in blocks that stay in the cache, the map is read once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 256  # pixels, at most


@torch.no_grad()
def remember(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Update the running statistics from a batch of `count` pixels."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    norm.num_batches_tracked += 1


class BlockwiseBatchNorm2d(nn.BatchNorm2d):
    """The same results as BatchNorm, up to rounding; without compilation it is BatchNorm."""

    def forward(self, x: Tensor) -> Tensor:
        compiled = torch.compiler.is_compiling() and x.device.type == "cpu"
        if not (compiled and self.training and x.dtype == self.weight.dtype):
            return super().forward(x)
        out, mean, variance = normalise(x, self.weight, self.bias, self.eps)
        remember(self, mean, variance, x.numel() // x.shape[1])
        return out


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Maps (B, C, H, W) normalised by their own statistics, scaled and shifted; then mean and variance (C,)."""
    out, mean, variance = _Normalise.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return out, mean, variance


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        count = x.numel() // x.shape[1]
        mean = _sum(x) / count
        variance = _sum((x - _channels(mean)).square()) / count
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return (x - _channels(mean)) * _channels(inverse * weight) + _channels(bias), mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, inverse = ctx.saved_tensors
        gradient, count = gradients[0], x.numel() // x.shape[1]
        unit = (x - _channels(mean)) * _channels(inverse)
        of_bias, of_weight = _sum(gradient), _sum(gradient * unit)
        centred = gradient - _channels(of_bias / count) - unit * _channels(of_weight / count)
        return centred * _channels(inverse * weight), of_weight, of_bias, None


def _sum(maps: Tensor) -> Tensor:
    """(B, C, H, W) -> (C,), first within blocks of pixels."""
    pixels = maps.movedim(1, -1).reshape(-1, maps.shape[1])
    return pixels.view(-1, math.gcd(len(pixels), BLOCK), maps.shape[1]).sum(1).sum(0)


def _channels(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)
