"""Replace layers of a network by equivalent ones, keeping names, parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def exchange(module: nn.Module, convert: Callable[[nn.Module], nn.Module | None]) -> None:
    """Replace each layer below the module by `convert(layer)`, unless that is None."""
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if (made := convert(layer)) is not None:
                setattr(parent, name, made)


def with_tensors_of(layer: nn.Module, made: M) -> M:
    """`made` with the parameters and buffers of another layer, shared and not copied."""
    for name, tensor in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
        setattr(made, name, tensor)
    return made.train(layer.training)


def exchange_batchnorm(module: nn.Module, kind: type[nn.BatchNorm2d]) -> None:
    """Replace every BatchNorm2d below the module by one of that kind."""

    def convert(layer: nn.Module) -> nn.Module | None:
        if type(layer) is not nn.BatchNorm2d:
            return None
        how = (layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        return with_tensors_of(layer, kind(*how, device="meta"))

    exchange(module, convert)
