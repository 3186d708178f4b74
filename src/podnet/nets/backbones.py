"""The convolutional networks of the paper: image -> one map for each stage (what POD compares) and the embedding.

The last block of each stage has no final ReLU, so maps are signed. `fidelity` chooses between the paper's text and the
released code, which has no final ReLU in any block of ResNet-32 and another stem in ResNet-18. UCIR's own networks
omit only the very last ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from podnet.fidelity import Fidelity
from podnet.nets import kernels

ONE_DNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")


class ConvNorm(nn.Module):
    """A convolution and its BatchNorm, together so that a frozen network can fold the second into the first.

    ReLU, where it follows, ends at `ceiling`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        eps: float = 1e-5,
        ceiling: float = math.inf,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps)
        self.ceiling = ceiling

    def forward(self, x: Tensor, plus: Tensor | None = None, relu: bool = False, spare: bool = False) -> Tensor:
        """Convolve and normalise, then optionally add `plus` and apply ReLU. A `spare` `plus` may be overwritten."""
        if isinstance(self.norm, nn.Identity) and _in_one_pass(x, self.conv):
            return _convolve_in_one_pass(x, self.conv, plus, self.ceiling if relu else None, spare)
        # In place on BatchNorm's output: no gradient needs its old values, and memory access dominates the time.
        out: Tensor = self.norm(self.conv(x))
        if plus is not None:
            out += plus
        if not relu:
            return out
        return F.relu_(out) if self.ceiling == math.inf else F.hardtanh_(out, 0.0, self.ceiling)

    def fold(self) -> None:
        """Fold the normalisation of a frozen network into its convolution."""
        assert isinstance(self.norm, nn.BatchNorm2d | nn.SyncBatchNorm)
        self.conv, self.norm = fuse_conv_bn_eval(self.conv, self.norm), nn.Identity()


def _in_one_pass(x: Tensor, conv: nn.Conv2d) -> bool:
    """Whether oneDNN can convolve, add and apply ReLU at once: on a CPU, without gradients, compiler or autocast."""
    watched = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return not watched and x.device.type == "cpu" and x.dtype == conv.weight.dtype == torch.float32 and ONE_DNN


def _convolve_in_one_pass(
    x: Tensor, conv: nn.Conv2d, plus: Tensor | None, ceiling: float | None, spare: bool
) -> Tensor:
    """With our convolution, or with the operation that torch.compile would generate; no separate passes.

    `ceiling` is where ReLU ends; None: no ReLU.
    """
    if isinstance(conv, kernels.Convolution) and conv.suits(x) and ceiling in (None, math.inf):
        return kernels.convolve(x, conv.weight, conv.bias, plus, ceiling is not None, spare)
    how = (conv.weight, conv.bias, conv.padding, conv.stride, conv.dilation, conv.groups)
    operations, limited = torch.ops.mkldnn, ceiling not in (None, math.inf)
    relu = None if ceiling is None else "relu"
    out: Tensor
    if plus is None:
        after = ("hardtanh", [0.0, ceiling]) if limited else (relu or "none", [])
        out = operations._convolution_pointwise(x, *how, *after, "")
        return out
    added = plus if spare else plus.clone()  # in place: writing to a third tensor takes longer than copying first
    out = operations._convolution_pointwise_.binary(added, x, *how, "add", 1.0, relu, [], "")
    return out.clamp_(max=ceiling) if limited else out  # after an addition oneDNN has no other ReLU


class EverySecondPixel(nn.Module):
    """iCaRL's shortcut across a widening block: every second pixel; new channels are zero."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(F.avg_pool2d(x, 1, stride=2), (0, 0, 0, 0, 0, x.shape[1]))


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut; `relu`: whether ReLU follows their sum.

    With `overwrites` a frozen block may overwrite its input.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, shortcut: nn.Module, relu: bool, overwrites: bool = False
    ) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs, 3)
        self.shortcut = shortcut
        self.relu = relu
        self.overwrites = overwrites

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x, relu=True)
        out: Tensor = self.second(inner, plus=self.shortcut(x), relu=self.relu, spare=self.overwrites)
        return out


@dataclass(frozen=True)
class Expected:
    """The images that an architecture expects."""

    size: int
    fixed: bool  # no other size is possible
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Backbone(nn.Module):
    """Images (B, channels, H, W) -> a map for each stage, (B, C, H, W), and the embedding (B, dim)."""

    channels: int
    dim: int
    side = 32  # of images that it can see
    averages_last_map = True  # whether that is the embedding

    def forward(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        raise NotImplementedError

    @torch.no_grad()
    def map_channels(self) -> list[int]:
        """The channels of each map."""
        trained = self.training
        device = next(self.parameters()).device
        maps, _ = self.eval()(torch.zeros(1, self.channels, self.side, self.side, device=device))
        self.train(trained)
        return [each.shape[1] for each in maps]


class ResNet(Backbone):
    """A stem and stages of blocks; the embedding is the average of the last map.

    With `starts_as_shortcuts` new blocks add zero to their shortcuts.
    """

    def __init__(
        self, channels: int, stem: nn.Module, stages: Sequence[nn.Module], dim: int, starts_as_shortcuts: bool = True
    ) -> None:
        super().__init__()
        self.channels = channels
        self.stem = stem
        self.stages = nn.ModuleList(stages)
        self.dim = dim
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # for meta torch would import its compiler
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, Block) and starts_as_shortcuts:
                nn.init.zeros_(module.second.get_parameter("norm.weight"))

    def forward(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        maps = []
        x = self.stem(images)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps, x.mean((2, 3))


Shortcut = Callable[[int, int], nn.Module]


def _stage(inputs: int, outputs: int, stride: int, relus: Sequence[bool], shortcut: Shortcut) -> nn.Sequential:
    """One block for each of `relus`, which says whether ReLU follows its sum; the first block may widen."""
    stage = nn.Sequential()
    for i, relu in enumerate(relus):
        widens = stride != 1 or inputs != outputs
        across = shortcut(inputs, outputs) if widens else nn.Identity()
        # Otherwise its input is the previous stage's map, which POD needs.
        overwrites = widens or i > 0
        stage.append(Block(inputs, outputs, stride, across, relu, overwrites))
        inputs, stride = outputs, 1
    return stage


def _projection(inputs: int, outputs: int) -> nn.Module:
    return ConvNorm(inputs, outputs, 1, 2)


def _all_but_last(depth: int) -> list[bool]:
    return [True] * (depth - 1) + [False]


SMALL = ((16, 16, 1), (16, 32, 2), (32, 64, 2))  # inputs, outputs and stride of each stage
LARGE = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))


def _stem(first: ConvNorm, *pooling: nn.Module) -> nn.Module:
    return nn.Sequential(first, nn.ReLU(inplace=True), *pooling)


def resnet32(channels: int = 3, fidelity: Fidelity = "released") -> ResNet:
    """iCaRL's ResNet-32 for small images: widths 16, 32, 64; four maps, the fourth one block after the third; 64-d."""
    plan = zip((*SMALL, (64, 64, 1)), (5, 5, 4, 1), strict=True)
    stages = [
        _stage(*row, _all_but_last(depth) if fidelity == "paper" else [False] * depth, lambda *_: EverySecondPixel())
        for row, depth in plan
    ]
    return ResNet(channels, _stem(ConvNorm(channels, 16, 3)), stages, dim=64)


def resnet18(channels: int = 3, fidelity: Fidelity = "released") -> ResNet:
    """ResNet-18 for photos: four stages of two blocks, 512-d. The released stem is 3x3 at stride 1, not 7x7 at 2."""
    first = ConvNorm(channels, 64, 7, 2) if fidelity == "paper" else ConvNorm(channels, 64, 3)
    stages = [_stage(*row, _all_but_last(2), _projection) for row in LARGE]
    return ResNet(channels, _stem(first, nn.MaxPool2d(3, 2, padding=1)), stages, dim=512)


def ucir_resnet32(channels: int = 3, fidelity: Fidelity = "released") -> ResNet:
    """The ResNet-32 that UCIR's authors trained: three stages of five blocks, 1x1 convolutions as shortcuts."""
    relus = ([True] * 5, [True] * 5, _all_but_last(5))
    stages = [_stage(*row, relu, _projection) for row, relu in zip(SMALL, relus, strict=True)]
    return ResNet(channels, _stem(ConvNorm(channels, 16, 3)), stages, dim=64, starts_as_shortcuts=False)


def ucir_resnet18(channels: int = 3, fidelity: Fidelity = "released") -> ResNet:
    """The ResNet-18 that UCIR's authors trained: the usual one without the last ReLU."""
    relus = ([True] * 2, [True] * 2, [True] * 2, _all_but_last(2))
    stages = [_stage(*row, relu, _projection) for row, relu in zip(LARGE, relus, strict=True)]
    stem = _stem(ConvNorm(channels, 64, 7, 2), nn.MaxPool2d(3, 2, padding=1))
    return ResNet(channels, stem, stages, dim=512, starts_as_shortcuts=False)


BACKBONES: dict[str, Callable[..., ResNet]] = {
    "resnet18": resnet18,
    "resnet18-ucir": ucir_resnet18,
    "resnet32": resnet32,
    "resnet32-ucir": ucir_resnet32,
}
