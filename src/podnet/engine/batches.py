"""The batches of an epoch: indices in random order, images, augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from podnet.data.augment import Share, Transform, batches
from podnet.data.images import Images, feed, to_device
from podnet.engine.team import Team


@dataclass(frozen=True)
class Batch:
    """A process's share of a batch."""

    inputs: Tensor  # (B, C, H, W), normalised
    targets: Tensor  # (B,)
    counts: float  # weight of the share in images: less than B if several processes share an image
    weight: float  # of the share's mean loss; makes the averaged gradients those of the whole batch


@dataclass(frozen=True)
class TrainingSet:
    """Images to train on, and how they become batches."""

    images: Images
    targets: Tensor  # on the network's device
    transform: Transform
    batch_size: int

    def only(self, chosen: Tensor) -> TrainingSet:
        """The chosen images as a training set."""
        return replace(self, images=self.images[chosen], targets=self.targets[chosen])

    def epoch(self, draws: torch.Generator, augment: bool, team: Team) -> tuple[int, Iterator[Batch]]:
        """The number of batches in an epoch, and this process's share of each."""
        parts = batches(len(self.targets), self.batch_size, draws)
        return len(parts), self._shares(parts, draws, augment, team)

    def _shares(self, parts: list[Tensor], draws: torch.Generator, augment: bool, team: Team) -> Iterator[Batch]:
        fed = feed(self.images, parts, draws if augment else None, team.rows)
        for part, (chosen, pixels) in zip(parts, fed, strict=True):
            share = Share(torch.isin(part, chosen).nonzero().flatten(), len(part))
            counts = team.images(len(chosen), len(part))
            if not len(chosen):  # none is readable: a black image that counts 0, because the others wait
                share, chosen = Share(torch.tensor([0]), len(part)), part[:1]
                pixels = pixels.new_zeros(1, *pixels.shape[1:])
            there = to_device(pixels, self.targets.device)
            inputs = self.transform.augment(there, draws, share) if augment else self.transform.normalise(there)
            yield Batch(inputs, self.targets[chosen], counts, counts * team.size / len(part))
