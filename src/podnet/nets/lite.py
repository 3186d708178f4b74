"""EfficientNet-Lite 0, 1 and 2 (Tan and Liu, 2020): small networks for photos, fast on a CPU, pretrained on ImageNet.

They are EfficientNets without squeeze-and-excitation, with ReLU6, and with a stem and a head of the same width in all
sizes. The pretrained weights were made with TensorFlow: BatchNorm has its epsilon, and where a convolution halves the
map, padding is as it pads: what is missing for whole windows, the odd pixel at the right and at the bottom.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from podnet.errors import ConfigError
from podnet.nets.backbones import Backbone, ConvNorm, Expected

EPSILON, CEILING = 1e-3, 6.0
STEM, HEAD = 32, 1280  # channels
STAGES = (  # kernel, stride, expansion, channels and blocks of each stage, before scaling
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
MAPS = (1, 2, 4)  # the last stages at a stride of 4, 8 and 16; the fourth map is that of the head
# Factors of width and depth, and the size of the images that the weights were trained on; others are possible, too.
SCALES = {"lite0": (1.0, 1.0, 224), "lite1": (1.0, 1.1, 240), "lite2": (1.1, 1.2, 260)}
EXPECTED = {name: Expected(size, False, (0.5,) * 3, (0.5,) * 3) for name, (_, _, size) in SCALES.items()}


class LiteConvNorm(ConvNorm):
    """A convolution with BatchNorm and ReLU6 that pads as TensorFlow does."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups, EPSILON, CEILING)
        if stride > 1:  # then padding depends on the size of the map
            self.conv.padding = (0, 0)

    def forward(self, x: Tensor, plus: Tensor | None = None, relu: bool = False, spare: bool = False) -> Tensor:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        if stride > 1:
            (top, bottom), (left, right) = (_padding(side, kernel, stride) for side in x.shape[2:])
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x, plus, relu, spare)


def _padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Pixels to add before and after, so that a window begins at every `stride`-th pixel."""
    missing = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
    return missing // 2, missing - missing // 2


class LiteBlock(nn.Module):
    """Widen, convolve each channel by itself, narrow; with a shortcut where the map stays as it is."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = LiteConvNorm(inputs, wide, 1) if expansion > 1 else None
        self.depthwise = LiteConvNorm(wide, wide, kernel, stride, groups=wide)
        self.project = LiteConvNorm(wide, outputs, 1)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.expand is None else self.expand(x, relu=True)
        wide = self.depthwise(wide, relu=True)
        # The input may be overwritten: no map enters a shortcut, because the first block of a stage changes the width.
        out: Tensor = self.project(wide, plus=x if self.shortcut else None, spare=True)
        return out


class Lite(Backbone):
    """A stem, seven stages and a head; the embedding is the average of the head's map."""

    def __init__(self, width: float, depth: float) -> None:
        super().__init__()
        self.channels, self.dim = 3, HEAD
        self.stem = LiteConvNorm(self.channels, STEM, 3, 2)
        self.stages, inputs = nn.ModuleList(), STEM
        for index, (kernel, stride, expansion, channels, blocks) in enumerate(STAGES):
            # Channels are a multiple of 8; the first and the last stage keep their depth.
            outputs, ends = int(channels * width + 4) // 8 * 8, index in (0, len(STAGES) - 1)
            stage = nn.Sequential()
            for block in range(blocks if ends else math.ceil(blocks * depth)):
                stage.append(LiteBlock(inputs, outputs, kernel, 1 if block else stride, expansion))
                inputs = outputs
            self.stages.append(stage)
        self.head = LiteConvNorm(inputs, HEAD, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # as for ResNet
                pixels = module.kernel_size[0] ** 2 * module.out_channels // module.groups
                nn.init.normal_(module.weight, 0.0, math.sqrt(2 / pixels))

    def forward(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        x, maps = self.stem(images, relu=True), []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in MAPS:
                maps.append(x)
        maps.append(self.head(x, relu=True))
        return maps, maps[-1].mean((2, 3))


def lite(name: str, channels: int) -> Lite:
    """The backbone "lite0", "lite1" or "lite2", with random weights."""
    if channels != 3:
        raise ConfigError(f"{name} needs images with 3 channels, not {channels}; choose resnet32 or resnet18.")
    return Lite(*SCALES[name][:2])
