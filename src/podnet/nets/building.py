"""Backbones by name, ours or timm's, and their pretrained weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from podnet.errors import ConfigError, nearest, printable
from podnet.fidelity import Fidelity
from podnet.nets.backbones import BACKBONES, Backbone, Expected
from podnet.nets.lite import EXPECTED, SCALES, lite
from podnet.nets.timm import PREFIX, TimmBackbone, expected_of_timm, from_hub_before, pretrained
from podnet.nets.weights import ORDERED, PACKAGE, PACKAGES, existing_file, match, packaged, read_weights

OURS = (*BACKBONES, *SCALES)


def new_backbone(name: str, channels: int, fidelity: Fidelity) -> Backbone:
    """A backbone with random weights; the fidelity affects only ours."""
    require_known(name)
    if name.startswith(PREFIX):
        return TimmBackbone(name, channels)
    if name in SCALES:
        return lite(name, channels)
    return BACKBONES[name](channels, fidelity=fidelity)


def expected_images(name: str) -> Expected | None:
    """The images that a pretrained backbone expects; None for ResNets, which take any."""
    return expected_of_timm(name) if name.startswith(PREFIX) else EXPECTED.get(name)


def default_weights(name: str) -> str:
    """Where a backbone of this name gets its weights from if nothing else is said; "none" are random ones."""
    return PACKAGE if name in SCALES else "hub" if name.startswith(PREFIX) else "none"


def require_known(backbone: str, weights: str = "none") -> None:
    """Refuse a backbone that is neither ours nor timm's, and sources of weights that it does not have."""
    if backbone not in OURS and not backbone.startswith(PREFIX):
        known = f"{', '.join(OURS)} or {PREFIX}NAME"
        raise ConfigError(f"backbone is {backbone!r}; it must be {known}.{nearest(backbone, OURS)}")
    if weights == PACKAGE and backbone not in SCALES:
        raise ConfigError(f"weights is {PACKAGE!r}, which works only for {', '.join(SCALES)}, not {backbone}.")
    if weights == "hub" and backbone in OURS:
        other = f", {PACKAGE!r}" if backbone in SCALES else ""
        raise ConfigError(
            f"weights is 'hub', which works only for {PREFIX}NAME; for {backbone} give 'none'{other} or a file."
        )


def start_from(backbone: Backbone, name: str, weights: str, seed: int) -> None:
    """Load pretrained weights into a new backbone of that name: from a "package", the "hub" or a file."""
    require_known(name, weights)
    if weights == "none":
        return
    if name.startswith(PREFIX):
        backbone.load_state_dict(pretrained(name, backbone.channels, weights, seed).state_dict())
        return
    if weights == PACKAGE:
        given, ordered = packaged(name), True
    else:
        file = existing_file(weights)
        given, ordered = read_weights(file), file.suffix in ORDERED
    # Not strict: only BatchNorm's counters may be missing.
    backbone.load_state_dict(match(backbone.state_dict(), given, printable(weights), ordered), strict=False)


def source_digest(name: str, weights: str) -> str | None:
    """The SHA-256 of the file that `start_from` has just read; None if it is not known."""
    if weights == PACKAGE:
        return PACKAGES[name][1]
    file = from_hub_before(name) if weights == "hub" else existing_file(weights)
    if file is None:
        return None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def require_room(backbone: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse fewer tensor elements than the backbone has, before an untrusted file makes us build it."""
    if not backbone.startswith(PREFIX):
        return  # ours are small
    with torch.device("meta"):
        needed = sum(parameter.numel() for parameter in TimmBackbone(backbone, channels=3).parameters())
    if needed > sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError(f"its weights are not those of {backbone}")
