"""Networks of a method: new ones, and those whose tensors were written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podnet.backbones import BACKBONES, Backbone
from podnet.errors import ConfigError, nearest
from podnet.methods.base import Method
from podnet.network import Network
from podnet.timm_models import PREFIX, TimmBackbone, pretrained


def new_network(method: Method, channels: int) -> Network:
    """Without classes."""
    require_known(method.backbone)
    backbone: Backbone
    if method.backbone.startswith(PREFIX):
        backbone = TimmBackbone(method.backbone, channels)
    else:
        backbone = BACKBONES[method.backbone](channels, fidelity=method.backbone_fidelity)
    return Network(backbone, method.classifier(backbone.dim), method.rectifies)


def require_known(backbone: str, weights: str = "none") -> None:
    """Refuse a name that is none of ours and does not ask for timm's, and weights for one of ours."""
    ours = backbone in BACKBONES
    if not ours and not backbone.startswith(PREFIX):
        known = f"{', '.join(BACKBONES)} or {PREFIX}NAME"
        raise ConfigError(f"backbone is {backbone!r}; it must be {known}.{nearest(backbone, BACKBONES)}")
    if ours and weights != "none":
        raise ConfigError(f"{backbone} starts from random weights; weights are for backbones {PREFIX}NAME.")


def start_from(network: Network, method: Method, weights: str, seed: int) -> None:
    """Give a new network's backbone pretrained weights: of the "hub", or of a file."""
    require_known(method.backbone, weights)
    if weights != "none":
        found = pretrained(method.backbone, network.backbone.channels, weights, seed)
        network.backbone.load_state_dict(found.state_dict())


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
    for size in sizes:
        network.classifier.add_classes(size)
    return network


def require_room(backbone: str, channels: int, tensors: Mapping[str, Tensor]) -> None:
    """Refuse fewer numbers than a backbone has, before a stranger's file makes us build it."""
    if not backbone.startswith(PREFIX):
        return  # ours are small
    with torch.device("meta"):
        needed = sum(parameter.numel() for parameter in TimmBackbone(backbone, channels).parameters())
    if needed > sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError(f"its weights are not those of {backbone}")


def choose_device(name: str) -> str:
    """The device of that name, "auto" being a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device is {name!r}, which this machine cannot use; --device cpu always works.") from error
    return name
