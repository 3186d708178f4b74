"""3x3 convolutions with fewer multiplications, for a CPU with AVX2 and not AVX-512.

There convolutions are most of the time of training, and oneDNN has nothing of the kind. The arithmetic is in
winograd.cpp, which is compiled where the package is installed with a C++ compiler at hand. It rounds less than a plain
sum of nine products does, because its sums are shorter.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

WIDTHS = (16, 32, 64)  # channels that it is compiled for
REAL = torch.float32
PIXELS = 1024  # with fewer it does not pay to transform the filters


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where there are none, or others are faster."""
    found = find_spec("podnet._winograd")
    if found is None or found.origin is None or torch.backends.cpu.get_cpu_capability() != "AVX2":
        return None
    return ctypes.CDLL(found.origin)


class Convolution(nn.Conv2d):
    """The same numbers as torch's, up to rounding; it is torch's for maps that do not suit."""

    def suits(self, x: Tensor) -> bool:
        images, _, height, width = x.shape
        even = height % 2 == width % 2 == 0
        real = x.dtype == self.weight.dtype == REAL and not torch.is_autocast_enabled("cpu")
        return even and real and x.device.type == "cpu" and images * height * width >= PIXELS

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is not None or not self.suits(x):
            return super().forward(x)
        out: Tensor = _convolve(x, self.weight, False)
        return out


def replace_convolutions(module: nn.Module) -> None:
    """Let every convolution that can be one of ours be so."""
    for conv in module.modules() if library() else ():
        if type(conv) is nn.Conv2d and _can_be_ours(conv):
            conv.__class__ = Convolution  # it has no state of its own


def _can_be_ours(conv: nn.Conv2d) -> bool:
    how = (conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode)
    return how == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and conv.in_channels == conv.out_channels in WIDTHS


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    plus: Tensor | None = None,
    relu: bool = False,
    backwards: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Maps (B, C, H, W) convolved, with something added and rectified where asked for, into `out`, which may be `plus`.

    With `backwards` it leads from slopes of the outputs to those of the inputs.
    """
    x, weight, plus = _pixel_by_pixel(x), _pixel_by_pixel(weight), None if plus is None else _pixel_by_pixel(plus)
    out = torch.empty_like(x) if out is None else out
    given = (*map(_address, (x, weight)), backwards, *map(_address, (bias, plus)), relu)
    _call("podnet_convolve", x, *given, torch.get_num_threads(), _address(out))
    return out


@torch.library.custom_op("podnet::convolve", mutates_args=())
def _convolve(x: Tensor, weight: Tensor, backwards: bool) -> Tensor:
    return convolve(x, weight, backwards=backwards)


@_convolve.register_fake
def _(x: Tensor, weight: Tensor, backwards: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


@torch.library.custom_op("podnet::slope_of_weight", mutates_args=())
def _slope_of_weight(x: Tensor, slope: Tensor) -> Tensor:
    x, slope = _pixel_by_pixel(x), _pixel_by_pixel(slope)
    out = _like_weight(x)
    _call("podnet_slopes", x, _address(x), _address(slope), torch.get_num_threads(), _address(out))
    return out


@_slope_of_weight.register_fake
def _(x: Tensor, slope: Tensor) -> Tensor:
    return _like_weight(x)


def _backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight = ctx.saved_tensors
    of_x = _convolve(slope, weight, True) if ctx.needs_input_grad[0] else None
    of_weight = _slope_of_weight(x, slope) if ctx.needs_input_grad[1] else None
    return of_x, of_weight, None


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


_convolve.register_autograd(_backward, setup_context=_remember)


def _like_weight(x: Tensor) -> Tensor:
    channels = x.shape[1]
    return x.new_empty(channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)


def _pixel_by_pixel(maps: Tensor) -> Tensor:
    """As they lie in memory: the channels of a pixel side by side."""
    return maps.contiguous(memory_format=torch.channels_last)


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _call(name: str, maps: Tensor, *given: Any) -> None:
    functions = library()
    assert functions is not None
    images, channels, height, width = map(ctypes.c_long, maps.shape)
    functions[name](images, height, width, channels, *given)
