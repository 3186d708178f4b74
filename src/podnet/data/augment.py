"""From uint8 images to network input: whole batches at a time, with separate random draws for each image."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.mixing import boxes
from podnet.data.policies import HIGHEST, OPERATIONS, transformed
from podnet.errors import ConfigError, one_of

Intensity = Literal["none", "shift", "scale"]
Augmentation = Literal["trivial", "cutout", "mixup", "cutmix"]  # beyond crops, mirror images and intensity
MIXING = frozenset[Augmentation]({"mixup", "cutmix"})  # these need the targets: podnet.data.mixing
MAX_CHANGE = 63  # of 255; the paper's range of random intensity
CUTOUT = 4  # a hole's side is this part of the image's: 8 of 32 pixels, as in its paper for CIFAR-100


@dataclass(frozen=True)
class Share:
    """The rows, (B,), that some images have in a batch of `count` images; random numbers are drawn for all of these."""

    rows: Tensor
    count: int

    def uniform(self, generator: torch.Generator) -> Tensor:
        """(B, 1, 1, 1) in [0, 1)."""
        return torch.rand(self.count, 1, 1, 1, generator=generator)[self.rows]

    def integers(self, generator: torch.Generator, end: int, *each: int) -> Tensor:
        """(*each, B), from 0 to end - 1."""
        return torch.randint(0, end, (*each, self.count), generator=generator)[..., self.rows]


@dataclass(frozen=True)
class Transform:
    """Padded random crop, mirror image and change of intensity for training; normalisation always.

    `mean` and `std` are per channel, for pixels in [0, 1]. `flip`: a mirror image shows the same class.

    Intensity "shift" adds one random value in [-63, 63] to an image (the paper's text), "scale" multiplies it by a
    random factor in 1 ± 63/255 (the released code).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int = 4
    flip: bool = True
    intensity: Intensity = "none"
    size: int | None = None  # side of the network's input, if images are scaled to it

    def normalise(self, images: Tensor) -> Tensor:
        """(B, C, H, W) pixels 0 to 255 -> normalised float32, scaled to `size`, in the channels-last layout."""
        pixels = images.to(torch.float32, memory_format=torch.channels_last)
        # As large as an image: broadcasting three numbers, one per channel, would be far slower.
        mean, std = (
            (255 * torch.tensor(of_channels, device=images.device))
            .view(1, -1, 1, 1)
            .expand(1, *images.shape[1:])
            .contiguous(memory_format=torch.channels_last)
            for of_channels in (self.mean, self.std)
        )
        normalised = (pixels - mean).div_(std)
        if self.size is None or images.shape[2:] == (self.size, self.size):
            return normalised
        return F.interpolate(normalised, (self.size, self.size), mode="bicubic", antialias=True)

    def augment(
        self,
        images: Tensor,
        generator: torch.Generator,
        share: Share | None = None,
        more: Collection[Augmentation] = (),
    ) -> Tensor:
        """Random versions of (B, C, H, W) uint8 images, normalised. Draws come from the generator only.

        A share of a batch gets the same augmentation as within the whole batch. With "trivial" in `more` each image
        goes through TrivialAugment first, with "cutout" it gets a hole last.
        """
        share = share or Share(torch.arange(len(images)), len(images))
        if "trivial" in more:
            direction = 2 * share.integers(generator, 2) - 1
            operations = share.integers(generator, len(OPERATIONS))
            images = transformed(images, operations, direction * share.integers(generator, HIGHEST + 1))
        pixels = self._padded(images)
        if self.pad:
            top, left = share.integers(generator, 2 * self.pad + 1, 2).to(images.device)
            windows = pixels.unfold(1, images.shape[2], 1).unfold(2, images.shape[3], 1)  # (B, top, left, H, W)
            pixels = windows[torch.arange(len(images), device=images.device), top, left]
        if self.flip:
            mirrored = (share.uniform(generator)[:, 0] < 0.5).to(images.device)  # (B, 1, 1)
            pixels = torch.where(mirrored, pixels.flip(2), pixels)
        planes = pixels[..., None].view(torch.uint8)[..., : images.shape[1]].permute(0, 3, 1, 2)
        changed = planes.contiguous(memory_format=torch.channels_last)
        if self.intensity != "none":
            change = (share.uniform(generator) * 2 - 1) * MAX_CHANGE
            if self.intensity == "shift":
                changed = (changed + change.round().to(images.device)).clamp_(0, 255)
            else:
                changed = (changed * (1 + change / 255).to(images.device)).clamp_(0, 255)
        inputs = self.normalise(changed)
        return _cut_out(inputs, share, generator) if "cutout" in more else inputs

    def _padded(self, images: Tensor) -> Tensor:
        """Pad with black and pack each pixel's channels into one integer, (B, H, W): a crop moves one per pixel."""
        count, channels, height, width = images.shape
        bytes_of_pixel = 1 if channels == 1 else 4
        padded = images.new_zeros(count, height + 2 * self.pad, width + 2 * self.pad, bytes_of_pixel)
        inside = padded[:, self.pad : self.pad + height, self.pad : self.pad + width]
        for channel in range(channels):
            inside[..., channel] = images[:, channel]
        return padded.view(torch.int32)[..., 0] if bytes_of_pixel == 4 else padded[..., 0]


def require_possible(owner: str, more: Collection[str]) -> None:
    """Refuse augmentations that do not exist, or that exclude each other."""
    for each in more:
        one_of(f"an augmentation of {owner}", each, get_args(Augmentation))
    if MIXING.issubset(more):
        raise ConfigError(f"the augmentation of {owner} has both mixup and cutmix; leave one of them out.")


def _cut_out(inputs: Tensor, share: Share, generator: torch.Generator) -> Tensor:
    """Cutout (DeVries and Taylor, 2017): a square of zeros, the mean colour, around a random pixel, in place."""
    height, width = inputs.shape[2:]
    side = torch.tensor([min(height, width) // CUTOUT])
    rows, columns = share.integers(generator, height), share.integers(generator, width)
    return inputs.masked_fill_(boxes(rows, columns, side, side, inputs), 0)


def batches(count: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """A random order of `count` indices cut into batches; a lone last image joins the batch before (BatchNorm)."""
    parts = list(torch.randperm(count, generator=generator).split(batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
