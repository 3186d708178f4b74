"""3x3 convolutions with fewer multiplications, for CPUs with AVX2 or AVX-512.

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

from podnet.nets.exchange import exchange, with_tensors_of

WIDTHS = (16, 32, 64)  # channels that it is compiled for
REAL = torch.float32
PIXELS = 2048  # with fewer it does not pay to transform the filters


@cache
def library() -> ctypes.CDLL | None:
    """The functions compiled for this CPU; None where there are none, or none that load."""
    return compiled_for(torch.backends.cpu.get_cpu_capability())


def compiled_for(capability: str) -> ctypes.CDLL | None:
    """The functions compiled for CPUs with AVX2, or with AVX512."""
    found = find_spec(f"podnet.nets._winograd_{capability.lower()}") if capability in ("AVX2", "AVX512") else None
    try:
        return ctypes.CDLL(found.origin) if found is not None and found.origin is not None else None
    except OSError:  # of another system
        return None


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
        out: Tensor = _Convolve.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return out


def replace_convolutions(module: nn.Module) -> None:
    """Let every convolution below the module that can be one of ours be so."""
    if library():
        exchange(module, _ours)


def _ours(layer: nn.Module) -> Convolution | None:
    if type(layer) is not nn.Conv2d or not _can_be_ours(layer):
        return None
    made = Convolution(layer.in_channels, layer.out_channels, 3, padding=1, bias=layer.bias is not None, device="meta")
    return with_tensors_of(layer, made)


def _can_be_ours(conv: nn.Conv2d) -> bool:
    how = (conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode)
    return how == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and conv.in_channels == conv.out_channels in WIDTHS


def pixel_by_pixel(maps: Tensor) -> Tensor:
    """As they lie in memory: the channels of a pixel side by side."""
    return maps.contiguous(memory_format=torch.channels_last)


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    plus: Tensor | None = None,
    relu: bool = False,
    spare: bool = False,
    backwards: bool = False,
) -> Tensor:
    """Maps (B, C, H, W) convolved, with something added and rectified where asked for; a `spare` one is written over.

    With `backwards` it leads from slopes of the outputs to those of the inputs.
    """
    x, weight, plus = pixel_by_pixel(x), pixel_by_pixel(weight), None if plus is None else pixel_by_pixel(plus)
    out = plus if spare and plus is not None else torch.empty_like(x)
    given = (*map(_address, (x, weight)), backwards, *map(_address, (bias, plus)), relu)
    _call("podnet_convolve", x, *given, torch.get_num_threads(), _address(out))
    return out


def slope_of_weight(x: Tensor, slope: Tensor) -> Tensor:
    """Of the weights, given the maps that they were applied to and the slope of the outputs."""
    x, slope = pixel_by_pixel(x), pixel_by_pixel(slope)
    out = _like_weight(x)
    _call("podnet_slopes", x, _address(x), _address(slope), torch.get_num_threads(), _address(out))
    return out


# As operations of torch's they can be parts of what torch.compile makes.
torch.library.define("podnet::convolve", "(Tensor x, Tensor weight, bool backwards) -> Tensor")
torch.library.define("podnet::slope_of_weight", "(Tensor x, Tensor slope) -> Tensor")
torch.library.impl("podnet::convolve", "cpu", lambda x, weight, backwards: convolve(x, weight, backwards=backwards))
torch.library.impl("podnet::slope_of_weight", "cpu", slope_of_weight)
torch.library.register_fake("podnet::convolve", lambda x, *_: torch.empty_like(x, memory_format=torch.channels_last))
torch.library.register_fake("podnet::slope_of_weight", lambda x, _: _like_weight(x))


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        out: Tensor = torch.ops.podnet.convolve(x, weight, False)
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, weight), (slope,) = ctx.saved_tensors, slopes
        of_x = torch.ops.podnet.convolve(slope, weight, True) if ctx.needs_input_grad[0] else None
        of_weight = torch.ops.podnet.slope_of_weight(x, slope) if ctx.needs_input_grad[1] else None
        return of_x, of_weight


def _like_weight(x: Tensor) -> Tensor:
    channels = x.shape[1]
    return x.new_empty(channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _call(name: str, maps: Tensor, *given: Any) -> None:
    functions, (images, channels, height, width) = library(), maps.shape
    assert functions is not None
    assert channels in WIDTHS
    getattr(functions, name)(*map(ctypes.c_long, (images, height, width, channels)), *given)
