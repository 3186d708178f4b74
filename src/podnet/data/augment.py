"""From uint8 images to network input, a whole batch at a time, each image with a draw of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Intensity = Literal["none", "shift", "scale"]
MAX_CHANGE = 63  # of 255; the paper's range of random intensity


@dataclass(frozen=True)
class Share:
    """Which rows, (B,), of a batch of `count` images some images are."""

    rows: Tensor
    count: int


@dataclass(frozen=True)
class _Draws:
    """Random numbers for the images of a share, drawn for the whole batch."""

    generator: torch.Generator
    share: Share

    def uniform(self) -> Tensor:
        """(B, 1, 1, 1) in [0, 1)."""
        return torch.rand(self.share.count, 1, 1, 1, generator=self.generator)[self.share.rows]

    def two_integers(self, end: int) -> Tensor:
        """(2, B), from 0 to end - 1."""
        return torch.randint(0, end, (2, self.share.count), generator=self.generator)[:, self.share.rows]


@dataclass(frozen=True)
class Transform:
    """Padded random crop, mirror image and change of intensity for training; normalisation always.

    `mean` and `std` are those of each channel, pixels in [0, 1]; `flip` tells that a mirror image shows the same class.

    Intensity "shift" adds one random value in [-63, 63] to an image (the paper's text), "scale" multiplies it by a
    random factor in 1 ± 63/255 (the released code).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int = 4
    flip: bool = True
    intensity: Intensity = "none"

    def normalise(self, images: Tensor) -> Tensor:
        """(B, C, H, W) pixels 0 to 255 -> normalised float32, in the channels-last layout."""
        pixels = images.to(torch.float32, memory_format=torch.channels_last)
        # As large as an image: three numbers that repeat, one a channel, would be far slower to subtract.
        mean, std = (
            (255 * torch.tensor(of_channels, device=images.device))
            .view(1, -1, 1, 1)
            .expand(1, *images.shape[1:])
            .contiguous(memory_format=torch.channels_last)
            for of_channels in (self.mean, self.std)
        )
        return (pixels - mean).div_(std)

    def augment(self, images: Tensor, generator: torch.Generator, share: Share | None = None) -> Tensor:
        """Random versions of (B, C, H, W) uint8 images, normalised. Draws come from the generator alone.

        Images that are a share of a batch come out as they would among the others.
        """
        draws = _Draws(generator, share or Share(torch.arange(len(images)), len(images)))
        cropped = self._crop(images, draws) if self.pad else self._mirror(images, draws)
        return self.normalise(self._change_intensity(cropped, draws))

    def _mirror(self, images: Tensor, draws: _Draws) -> Tensor:
        """Half of the images mirrored, where a mirror image shows the same class."""
        if not self.flip:
            return images
        mirrored = draws.uniform() < 0.5
        return torch.where(mirrored.to(images.device), images.flip(3), images)

    def _crop(self, images: Tensor, draws: _Draws) -> Tensor:
        """A random window of each padded image, half of them mirrored."""
        count, _, height, width = images.shape
        top, left = draws.two_integers(2 * self.pad + 1).to(images.device)
        padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, *(self.pad,) * 4))
        windows = padded.unfold(1, height, 1).unfold(2, width, 1).permute(0, 1, 2, 4, 5, 3)  # (B, top, left, H, W, C)
        cropped = windows[torch.arange(count, device=images.device), top, left].permute(0, 3, 1, 2)
        return self._mirror(cropped, draws)

    def _change_intensity(self, images: Tensor, draws: _Draws) -> Tensor:
        if self.intensity == "none":
            return images
        draw = draws.uniform() * 2 - 1  # in [-1, 1)
        if self.intensity == "shift":
            return (images + (draw * MAX_CHANGE).round().to(images.device)).clamp_(0, 255)
        return (images * (1 + draw * MAX_CHANGE / 255).to(images.device)).clamp_(0, 255)


def batches(count: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """A random order of `count` indices cut into batches; a lone last image joins the batch before (BatchNorm)."""
    parts = list(torch.randperm(count, generator=generator).split(batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
