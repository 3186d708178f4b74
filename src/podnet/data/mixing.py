"""Mixup and CutMix: images mixed with others of the same batch, and their targets with them."""

from __future__ import annotations

import torch
from torch import Tensor

CUT = 0.5  # share of the images that CutMix changes, as its authors chose for CIFAR


def mixed_up(inputs: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mixup (Zhang et al., ICLR 2018): λ x + (1 - λ) x', and the same of the targets (B, classes).

    λ is uniform, which is the paper's Beta(1, 1) for CIFAR; each image has its own.
    """
    partners = torch.randperm(len(inputs), generator=generator).to(inputs.device)
    kept = torch.rand(len(inputs), 1, 1, 1, generator=generator).to(inputs.device)
    return _between(inputs, inputs[partners], kept), _between(targets, targets[partners], kept[:, :, 0, 0])


def cut_and_mixed(inputs: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """CutMix (Yun et al., ICCV 2019): a box of another image, and targets (B, classes) by the areas.

    The area of the box is 1 - λ of the image, λ uniform; what lies outside of the image is lost.
    """
    count, (height, width) = len(inputs), inputs.shape[2:]
    partners = torch.randperm(count, generator=generator).to(inputs.device)
    side = torch.rand(count, generator=generator).sqrt()  # of the box, as a share of the image's: √(1 - λ)
    side *= torch.rand(count, generator=generator) < CUT
    rows, columns = (torch.randint(0, end, (count,), generator=generator) for end in (height, width))
    box = boxes(rows, columns, (side * height).long(), (side * width).long(), inputs)
    kept = 1 - box.float().mean((2, 3))  # (B, 1)
    return torch.where(box, inputs[partners], inputs), _between(targets, targets[partners], kept)


def boxes(rows: Tensor, columns: Tensor, heights: Tensor, widths: Tensor, images: Tensor) -> Tensor:
    """Which pixels lie in the box of each of (B, C, H, W) images, (B, 1, H, W). Rows and columns are of its centre.

    An odd side loses a pixel, as in the papers' code.
    """
    there = [each.to(images.device).view(-1, 1, 1, 1) for each in (rows, columns, heights // 2, widths // 2)]
    row, column, half_height, half_width = there
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside_y = (y >= row - half_height) & (y < row + half_height)
    return inside_y & (x >= column - half_width) & (x < column + half_width)


def _between(own: Tensor, other: Tensor, kept: Tensor) -> Tensor:
    return kept * own + (1 - kept) * other
