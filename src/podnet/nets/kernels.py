"""3x3 convolutions with fewer multiplications, for CPUs with AVX2 or AVX-512 (docs/convolutions.md).

Convolutions take most of the training time on a CPU, and oneDNN has no fast Winograd convolution for training. The
arithmetic is in winograd.cpp, which is compiled when the package is installed and a C++ compiler is available. This
module is the only one that calls it: arguments are checked here, and a failure in C++ comes back as a status.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from podnet.errors import ConfigError
from podnet.nets.exchange import exchange, with_tensors_of

VARIABLE = "PODNET_CONVOLUTIONS"  # environment variable: "podnet" (the default) or "torch"
CAPABILITIES = ("AVX2", "AVX512")  # of the CPUs that it is compiled for
WIDTHS = (16, 32, 64)  # numbers of channels it is compiled for
REAL = torch.float32
PIXELS = 2048  # with fewer, transforming the filters costs more than it saves
NO_MEMORY = 1  # a Status of winograd.cpp; 0 is success


@cache
def library() -> ctypes.CDLL | None:
    """The functions compiled for this CPU; None if there are none, or PODNET_CONVOLUTIONS=torch turns them off."""
    choice = os.environ.get(VARIABLE) or "podnet"
    if choice not in ("podnet", "torch"):
        raise ConfigError(f"{VARIABLE} is {choice!r}; it must be 'podnet' or 'torch'.")
    return compiled_for(torch.backends.cpu.get_cpu_capability()) if choice == "podnet" else None


def compiled_for(capability: str) -> ctypes.CDLL | None:
    """The functions compiled for CPUs with AVX2, or with AVX512."""
    file = compiled_file(capability)
    try:
        return None if file is None else load(file)
    except (OSError, ImportError):  # compiled for another system, or from another version: `podnet doctor` says so
        return None


def compiled_file(capability: str) -> str | None:
    """The file of the functions compiled for such CPUs; None if there is none."""
    found = find_spec(f"podnet.nets._winograd_{capability.lower()}") if capability in CAPABILITIES else None
    return None if found is None else found.origin


def load(path: str) -> ctypes.CDLL:
    """Load a compiled winograd.cpp and declare its functions as at the end of that file."""
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    functions, shape = ctypes.CDLL(path), [size] * 4
    try:
        convolve, gradient = functions.podnet_convolve, functions.podnet_weight_gradient
    except AttributeError as error:
        raise ImportError(f"{path} was compiled from another version of winograd.cpp; reinstall podnet.") from error
    convolve.argtypes = [*shape, pointer, pointer, integer, pointer, pointer, integer, integer, pointer]
    gradient.argtypes = [*shape, pointer, pointer, integer, pointer]
    convolve.restype = gradient.restype = integer
    return functions


class Convolution(nn.Conv2d):
    """The same results as torch's convolution, up to rounding; maps that do not suit use torch's own."""

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
    """Replace every suitable convolution below the module by ours."""
    if library():
        exchange(module, _ours)


def _ours(layer: nn.Module) -> Convolution | None:
    if type(layer) is not nn.Conv2d or layer.in_channels != layer.out_channels or layer.in_channels not in WIDTHS:
        return None
    how = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
    if how != ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros"):
        return None
    made = Convolution(layer.in_channels, layer.out_channels, 3, padding=1, bias=layer.bias is not None, device="meta")
    return with_tensors_of(layer, made)


def pixel_by_pixel(maps: Tensor) -> Tensor:
    """The same values in channels-last memory layout: the channels of a pixel side by side."""
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
    """Convolve maps (B, C, H, W); optionally add `bias` and `plus` and apply ReLU.

    A `spare` `plus` is overwritten with the result. With `backwards`, x is the gradient of the outputs and the result
    is that of the inputs.
    """
    x = _maps(x)
    channels = x.shape[1]
    weight = _laid_out("weight", weight, (channels, channels, 3, 3))
    bias = None if bias is None else _laid_out("bias", bias, (channels,))
    plus = None if plus is None else _laid_out("plus", plus, x.shape)
    out = plus if spare and plus is not None else torch.empty_like(x)
    given = (*map(_address, (x, weight)), backwards, *map(_address, (bias, plus)), relu)
    _call("podnet_convolve", x, *given, torch.get_num_threads(), _address(out))
    return out


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the weights, given the maps they were applied to and the gradient of the outputs."""
    x = _maps(x)
    gradient = _laid_out("gradient", gradient, x.shape)
    out = _like_weight(x)
    _call("podnet_weight_gradient", x, _address(x), _address(gradient), torch.get_num_threads(), _address(out))
    return out


# As torch operations they can be part of what torch.compile generates.
torch.library.define("podnet::convolve", "(Tensor x, Tensor weight, bool backwards) -> Tensor")
torch.library.define("podnet::weight_gradient", "(Tensor x, Tensor gradient) -> Tensor")
torch.library.impl("podnet::convolve", "cpu", lambda x, weight, backwards: convolve(x, weight, backwards=backwards))
torch.library.impl("podnet::weight_gradient", "cpu", weight_gradient)
torch.library.register_fake("podnet::convolve", lambda x, *_: torch.empty_like(x, memory_format=torch.channels_last))
torch.library.register_fake("podnet::weight_gradient", lambda x, _: _like_weight(x))


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        out: Tensor = torch.ops.podnet.convolve(x, weight, False)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        of_x = torch.ops.podnet.convolve(gradient, weight, True) if ctx.needs_input_grad[0] else None
        of_weight = torch.ops.podnet.weight_gradient(x, gradient) if ctx.needs_input_grad[1] else None
        return of_x, of_weight


def _like_weight(x: Tensor) -> Tensor:
    channels = x.shape[1]
    return x.new_empty(channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)


def _maps(x: Tensor) -> Tensor:
    """The maps pixel by pixel; refused if the compiled functions would misread them or read beyond their end."""
    shape = tuple(x.shape)
    if len(shape) != 4 or shape[1] not in WIDTHS or any(side < 2 or side % 2 for side in shape[2:]):
        widths = ", ".join(map(str, WIDTHS))
        raise ValueError(f"x has shape {shape}; give maps (B, C, H, W) with C one of {widths}, and H and W even.")
    return _laid_out("x", x, shape)


def _laid_out(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor in the memory layout of the compiled functions; refused if it is not what they take."""
    given = (tuple(tensor.shape), tensor.dtype, tensor.device.type)
    if given != (tuple(shape), REAL, "cpu"):
        what = f"{name} is {given[1]} of shape {given[0]} on {given[2]}"
        raise ValueError(f"{what}; it must be {REAL} of shape {tuple(shape)} on cpu.")
    return tensor.contiguous() if tensor.ndim == 1 else pixel_by_pixel(tensor)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _call(name: str, maps: Tensor, *given: Any) -> None:
    functions, (images, channels, height, width) = library(), maps.shape
    if functions is None:
        raise RuntimeError("podnet's convolutions are not available here; use torch.nn.functional.conv2d.")
    status = getattr(functions, name)(images, height, width, channels, *given)
    if status == NO_MEMORY:
        raise MemoryError(f"not enough memory to convolve maps of shape {tuple(maps.shape)}; use smaller batches.")
    if status:
        raise RuntimeError(f"{name} refused maps of shape {tuple(maps.shape)} (status {status}).")
