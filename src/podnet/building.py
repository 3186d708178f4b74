"""Networks of a method: new ones, and those whose tensors were written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podnet.backbones import BACKBONES
from podnet.methods.base import Method
from podnet.network import Network


def new_network(method: Method, channels: int) -> Network:
    """Without classes."""
    backbone = BACKBONES[method.backbone](channels, form=method.form)
    return Network(backbone, method.classifier(backbone.dim))


def network_from(tensors: Mapping[str, Tensor], method: Method, channels: int, sizes: Sequence[int]) -> Network:
    """The network of these tensors, whose classes came in groups of these sizes."""
    with torch.device("meta"):  # nothing is allocated before the tensors are seen to fit
        network = new_network(method, channels)
        for size in sizes:
            network.classifier.add_classes(size)
    for name, expected in network.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype}, not {expected.dtype}.")
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    return network
