"""Our convolutions against torch's."""

from functools import partial

import torch
from torch import Tensor, nn

from podnet.bench.measure import Figure, Work, in_turns, ratio
from podnet.bench.training import BATCH
from podnet.nets.kernels import library, pixel_by_pixel, replace_convolutions
from podnet.processes import keep_freed_memory

SIDES = {16: 32, 32: 16, 64: 8}  # side of ResNet-32's maps, by channels


def convolutions(quick: bool) -> dict[str, Figure]:
    """Forward pass and both gradients for a batch; empty if our convolutions are not available."""
    keep_freed_memory()
    figures = {}
    for channels, side in SIDES.items() if library() else ():
        maps = pixel_by_pixel(torch.randn(BATCH, channels, side, side)).requires_grad_()
        theirs = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        theirs.weight = nn.Parameter(pixel_by_pixel(theirs.weight.detach()))
        network = nn.Sequential(theirs)
        replace_convolutions(network)
        ours = network[0]
        assert isinstance(ours, nn.Conv2d)
        both = {"torch": theirs, "ours": ours}
        works: dict[str, Work] = {f"{whose} forward": partial(conv, maps) for whose, conv in both.items()}
        works |= {f"{whose} backward": _backward(conv, maps) for whose, conv in both.items()}
        taken = in_turns(works, 10 if quick else 50)
        for way in ("forward", "backward"):
            what = f"a 3x3 convolution of {channels} channels, {way}"
            figures[f"convolution_{channels}_channels_{way}_vs_torch"] = ratio(
                taken[f"torch {way}"], taken[f"ours {way}"], what
            )
    return figures


def _backward(conv: nn.Conv2d, maps: Tensor) -> Work:
    out = conv(maps)
    gradient = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, (maps, conv.weight), gradient, retain_graph=True)
