"""Backbones by name, ours or timm's, and their pretrained weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from podnet.errors import ConfigError, nearest
from podnet.fidelity import Fidelity
from podnet.nets.backbones import BACKBONES, Backbone
from podnet.nets.timm import PREFIX, TimmBackbone, pretrained


def new_backbone(name: str, channels: int, fidelity: Fidelity) -> Backbone:
    """A backbone with random weights; the fidelity affects only ours."""
    require_known(name)
    if name.startswith(PREFIX):
        return TimmBackbone(name, channels)
    return BACKBONES[name](channels, fidelity=fidelity)


def require_known(backbone: str, weights: str = "none") -> None:
    """Refuse a backbone that is neither ours nor timm's, and pretrained weights for ours."""
    ours = backbone in BACKBONES
    if not ours and not backbone.startswith(PREFIX):
        known = f"{', '.join(BACKBONES)} or {PREFIX}NAME"
        raise ConfigError(f"backbone is {backbone!r}; it must be {known}.{nearest(backbone, BACKBONES)}")
    if ours and weights != "none":
        raise ConfigError(f"{backbone} starts from random weights; weights are for backbones {PREFIX}NAME.")


def start_from(backbone: Backbone, name: str, weights: str, seed: int) -> None:
    """Load pretrained weights into a new backbone of that name, from the "hub" or a file."""
    require_known(name, weights)
    if weights != "none":
        backbone.load_state_dict(pretrained(name, backbone.channels, weights, seed).state_dict())


def require_room(backbone: str, channels: int, tensors: Mapping[str, Tensor]) -> None:
    """Refuse fewer tensor elements than the backbone has, before an untrusted file makes us build it."""
    if not backbone.startswith(PREFIX):
        return  # ours are small
    with torch.device("meta"):
        needed = sum(parameter.numel() for parameter in TimmBackbone(backbone, channels).parameters())
    if needed > sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError(f"its weights are not those of {backbone}")
