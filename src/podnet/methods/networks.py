"""Networks of a method: new ones, and saved ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podnet.methods.base import Method
from podnet.nets.building import new_backbone
from podnet.nets.network import Network


def new_network(method: Method, channels: int) -> Network:
    """A network without classes."""
    backbone = new_backbone(method.backbone, channels, method.backbone_fidelity)
    return method.network(backbone)


def network_from(tensors: Mapping[str, Tensor], method: Method, channels: int, sizes: Sequence[int]) -> Network:
    """The network with these tensors, whose classes were added in groups of these sizes."""
    with torch.device("meta"):  # allocate nothing before the tensors are known to fit
        network = _empty(method, channels, sizes)
    for name, expected in network.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype}, not {expected.dtype}.")
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    if any(buffer.is_meta for buffer in network.buffers()):  # buffers that some timm networks create and never save
        network = _empty(method, channels, sizes)
        network.load_state_dict(tensors)
    return network


def _empty(method: Method, channels: int, sizes: Sequence[int]) -> Network:
    network = new_network(method, channels)
    for size in sizes:
        method.rebuild(network, size)
    return network
