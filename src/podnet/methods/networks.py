"""Networks of a method: new ones, and those whose tensors were written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podnet.methods.base import Method
from podnet.nets.building import new_backbone
from podnet.nets.network import Network


def new_network(method: Method, channels: int) -> Network:
    """Without classes."""
    backbone = new_backbone(method.backbone, channels, method.backbone_fidelity)
    return Network(backbone, method.classifier(backbone.dim), method.rectifies)


def network_from(tensors: Mapping[str, Tensor], method: Method, channels: int, sizes: Sequence[int]) -> Network:
    """The network of these tensors, whose classes came in groups of these sizes."""
    with torch.device("meta"):  # nothing is allocated before the tensors are seen to fit
        network = _with_classes(new_network(method, channels), sizes)
    for name, expected in network.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype}, not {expected.dtype}.")
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    if any(buffer.is_meta for buffer in network.buffers()):  # what some networks of timm make and never write down
        network = _with_classes(new_network(method, channels), sizes)
        network.load_state_dict(tensors)
    return network


def _with_classes(network: Network, sizes: Sequence[int]) -> Network:
    for size in sizes:  # random weights, which are replaced, would make torch import its compiler
        network.classifier.add_classes(size, torch.empty(size, *network.classifier.shape))
    return network
