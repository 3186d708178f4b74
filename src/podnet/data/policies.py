"""TrivialAugment: one random operation of random strength for each image (Müller and Hutter, ICCV 2021).

The authors' "wide" space: 14 operations, 31 strengths. Each operation gives Pillow's pixels, but takes all images that
drew it at once: uint8 (n, C, H, W), and their strengths (n,), whole numbers from -30 to 30. The sign is a direction;
operations without one ignore it. Strengths stay on the CPU, so that a GPU does not round them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HIGHEST = 30  # strength; the lowest is 0
SHEAR = 0.99  # pixels per pixel
SHIFT = 32  # pixels, but no more than the image has
ANGLE = 135  # degrees
BITS = 6  # the most that posterising drops
ENHANCED = (0.01, 2.0)  # 1 changes nothing

Coefficient = Tensor | float  # (n,) or one for all


def transformed(images: Tensor, operations: Tensor, strengths: Tensor) -> Tensor:
    """Each of (B, C, H, W) images after its operation, (B,) indices of OPERATIONS, with its strength (B,)."""
    result = images.clone()
    for i, operation in enumerate(OPERATIONS):
        rows = (operations == i).nonzero().flatten()
        if len(rows) and operation is not identity:
            there = rows.to(images.device)
            result[there] = operation(images[there], strengths[rows])
    return result


def identity(images: Tensor, strengths: Tensor) -> Tensor:
    return images


def auto_contrast(images: Tensor, strengths: Tensor) -> Tensor:
    """Each channel stretched to 0 ... 255."""
    pixels = images.double()
    lowest, highest = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    scale = pixels.new_tensor(255) / (highest - lowest)  # infinite if all pixels are equal
    return torch.where(highest > lowest, (pixels * scale - lowest * scale).clamp(0, 255), pixels).to(torch.uint8)


def equalize(images: Tensor, strengths: Tensor) -> Tensor:
    """Each channel by a table that makes its levels about equally frequent."""
    levels = images.flatten(2).long()  # (n, C, pixels)
    counts = levels.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, torch.ones_like(levels))
    last = counts.gather(2, levels.amax(2, keepdim=True))  # pixels of the highest level
    step = (levels.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(2, levels), levels).to(torch.uint8).view_as(images)


def rotate(images: Tensor, strengths: Tensor) -> Tensor:
    """Whole degrees around the centre."""
    height, width = images.shape[2:]
    angles = torch.deg2rad(_part(strengths, ANGLE).trunc())
    cosine, sine = angles.cos(), angles.sin()
    x, y = width / 2, height / 2
    return affine(images, (cosine, -sine, x - cosine * x + sine * y), (sine, cosine, y - sine * x - cosine * y))


def solarize(images: Tensor, strengths: Tensor) -> Tensor:
    """Levels from a threshold on inverted."""
    threshold = 256 - _part(strengths.abs(), 256).trunc()
    return torch.where(images < _per_image(threshold, images), images, 255 - images)


def color(images: Tensor, strengths: Tensor) -> Tensor:
    return _enhanced(images, grey(images), strengths)


def posterize(images: Tensor, strengths: Tensor) -> Tensor:
    """The lowest bits dropped."""
    mask = 256 - 2 ** _part(strengths.abs(), BITS).trunc()
    return images & _per_image(mask.to(torch.uint8), images)


def contrast(images: Tensor, strengths: Tensor) -> Tensor:
    mean = (grey(images).double().mean((2, 3), keepdim=True) + 0.5).floor()
    return _enhanced(images, mean, strengths)


def brightness(images: Tensor, strengths: Tensor) -> Tensor:
    return _enhanced(images, torch.zeros_like(images), strengths)


def sharpness(images: Tensor, strengths: Tensor) -> Tensor:
    """Against an average with the eight pixels around, itself five times; pixels at the border stay."""
    pixels = images.int()
    smooth = pixels.clone()
    inner = pixels[:, :, 1:-1, 1:-1]
    three = pixels[:, :, :-2] + pixels[:, :, 1:-1] + pixels[:, :, 2:]  # in a column
    nine = three[..., :-2] + three[..., 1:-1] + three[..., 2:]
    smooth[:, :, 1:-1, 1:-1] = (2 * (nine + 4 * inner) + 13) // 26  # a thirteenth, rounded
    return _enhanced(images, smooth, strengths)


def shear_x(images: Tensor, strengths: Tensor) -> Tensor:
    return affine(images, (1, _part(strengths, SHEAR), 0), (0, 1, 0))


def shear_y(images: Tensor, strengths: Tensor) -> Tensor:
    return affine(images, (1, 0, 0), (_part(strengths, SHEAR), 1, 0))


def translate_x(images: Tensor, strengths: Tensor) -> Tensor:
    return affine(images, (1, 0, _part(strengths, min(SHIFT, images.shape[3])).trunc()), (0, 1, 0))


def translate_y(images: Tensor, strengths: Tensor) -> Tensor:
    return affine(images, (1, 0, 0), (0, 1, _part(strengths, min(SHIFT, images.shape[2])).trunc()))


Operation = Callable[[Tensor, Tensor], Tensor]
OPERATIONS: tuple[Operation, ...] = (
    identity,
    auto_contrast,
    equalize,
    rotate,
    solarize,
    color,
    posterize,
    contrast,
    brightness,
    sharpness,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)


def affine(images: Tensor, of_x: tuple[Coefficient, ...], of_y: tuple[Coefficient, ...]) -> Tensor:
    """The pixel at (x, y) comes from where a x + b y + c of `of_x` and of `of_y` point to; black if that is outside.

    In 65536ths of a pixel, as Pillow computes it: whole numbers are the same on every machine.
    """
    height, width = images.shape[2:]
    x, y = _source(of_x, images), _source(of_y, images)  # (n, H, W)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    index = torch.where(inside, y * width + x, 0).flatten(1)[:, None].expand(-1, images.shape[1], -1)
    pixels = images.flatten(2).gather(2, index).view(images.shape)
    return pixels * inside[:, None]


def _source(coefficients: tuple[Coefficient, ...], images: Tensor) -> Tensor:
    a, b, c = (torch.as_tensor(each, dtype=torch.float64).expand(len(images)) for each in coefficients)
    middle = c + a * 0.5 + b * 0.5  # of the first pixel
    by_x, by_y, start = (
        (each * 65536 + 0.5).floor().long().to(images.device).view(-1, 1, 1) for each in (a, b, middle)
    )
    columns = torch.arange(images.shape[3], device=images.device)
    rows = torch.arange(images.shape[2], device=images.device)[:, None]
    return (start + by_y * rows + by_x * columns) >> 16


def grey(images: Tensor) -> Tensor:
    """The brightness of each pixel, (n, 1, H, W): the usual weights for three channels, else the mean."""
    if images.shape[1] != 3:
        return images.sum(1, keepdim=True, dtype=torch.int32) // images.shape[1]
    red, green, blue = images.int().split(1, dim=1)
    weighted: Tensor = 19595 * red + 38470 * green + 7471 * blue  # in 65536ths
    return (weighted + 32768) >> 16


def _enhanced(images: Tensor, degenerate: Tensor, strengths: Tensor) -> Tensor:
    """From the degenerate image through the original, and beyond it."""
    least, most = ENHANCED
    factor = _per_image((_part(strengths.abs(), most - least) + least).float(), images)
    plain = degenerate.float()
    return (plain + factor * (images.float() - plain)).clamp_(0, 255).to(torch.uint8)


def _part(strengths: Tensor, most: float) -> Tensor:
    """What a strength means for an operation that reaches `most`."""
    return strengths.double() * most / HIGHEST


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.device).view(-1, 1, 1, 1)
