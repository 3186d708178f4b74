"""Baselines: the same work written in the obvious way, or in the order of the released code."""

import copy
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor, nn

from podnet.methods import PODNet
from podnet.methods.phases import Loss
from podnet.nets.backbones import Backbone
from podnet.nets.network import Network, Outputs

SHIFTS = [[min(max(value + shift, 0), 255) for value in range(256)] * 3 for shift in range(-63, 64)]  # for Pillow


class PlainBlock(nn.Module):
    """Two convolutions with iCaRL's shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))
        return out + x


class PlainResNet32(Backbone):
    """A second implementation of the released ResNet-32."""

    channels, dim = 3, 64

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        stages = []
        for inputs, outputs, depth, stride in [(16, 16, 5, 1), (16, 32, 5, 2), (32, 64, 4, 2), (64, 64, 1, 1)]:
            blocks = [PlainBlock(inputs if i == 0 else outputs, outputs, stride if i == 0 else 1) for i in range(depth)]
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        x = F.relu(self.bn(self.conv(x)))
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps, x.mean((2, 3))


def plain_copy(network: Network) -> Network:
    """The network with the same weights, built plainly: contiguous, separate BatchNorm, nothing in place."""

    def layers(module: nn.Module) -> list[nn.Module]:
        return [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]

    backbone = PlainResNet32().to(next(network.parameters()).dtype)
    for own, other in zip(layers(backbone), layers(network.backbone), strict=True):
        own.load_state_dict(other.state_dict())
    plain = copy.deepcopy(network)
    plain.backbone = backbone
    return plain


class PlainPODNet(PODNet):
    """POD-spatial written in the obvious way, on contiguous maps."""

    def distance(self, teacher: Outputs, student: Outputs) -> Tensor:
        total = torch.zeros(())
        for old, new in zip(teacher.maps, student.maps, strict=True):
            pooled = [torch.cat([maps.square().sum(axis).flatten(1) for axis in (3, 2)], dim=1) for maps in (old, new)]
            total = total + (F.normalize(pooled[0]) - F.normalize(pooled[1])).norm(dim=1).mean()
        return total / len(student.maps)


def train(
    network: Network,
    teacher: Network | None,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
) -> None:
    """One epoch over normalised batches, as in any tutorial."""
    network.train()
    for inputs, targets in batches:
        outputs = network(inputs.contiguous())
        old = None
        if teacher is not None:
            with torch.no_grad():
                old = teacher(inputs.contiguous())
        terms = loss(outputs, old, targets)
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()


@torch.no_grad()
def features(network: Network, batches: Iterable[Tensor]) -> Tensor:
    """Embeddings of normalised batches."""
    network.eval()
    return torch.cat([network(inputs.contiguous()).embedding for inputs in batches])


def augment(image: Image.Image, pad: int, draws: np.random.Generator) -> Tensor:
    """Padded random crop, mirror image, change of intensity and normalisation of one Pillow image."""
    width, height = image.size
    left, top = draws.integers(0, 2 * pad + 1, 2)
    image = ImageOps.expand(image, pad).crop((left, top, left + width, top + height))
    if draws.random() < 0.5:
        image = ImageOps.mirror(image)
    image = image.point(SHIFTS[draws.integers(len(SHIFTS))])
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    return (pixels - 0.5) / 0.25


def random_crop(path: Path, size: int, draws: np.random.Generator) -> np.ndarray:
    """A photo decoded in full, then a random part of it scaled."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    width, height = image.size
    share = float(np.sqrt(draws.uniform(0.08, 1.0)))
    across, down = width * share, height * share
    left, top = draws.uniform(0, width - across), draws.uniform(0, height - down)
    part = image.crop((left, top, left + across, top + down))
    return np.asarray(part.resize((size, size), Image.Resampling.BILINEAR))
