"""The batches of an epoch: indices in random order, images, augmentation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.augment import Share, Transform, batches
from podnet.data.images import Images, feed, to_device
from podnet.data.mixing import cut_and_mixed, mixed_up
from podnet.engine.team import Team
from podnet.methods.phases import Phase


@dataclass(frozen=True)
class Batch:
    """A process's share of a batch."""

    inputs: Tensor  # (B, C, H, W), normalised
    targets: Tensor  # (B,), or (B, classes) if images were mixed
    counts: float  # weight of the share in images: less than B if several processes share an image
    weight: float  # of the share's mean loss; makes the averaged gradients those of the whole batch


@dataclass(frozen=True)
class TrainingSet:
    """Images to train on, and how they become batches."""

    images: Images
    targets: Tensor  # on the network's device
    transform: Transform
    batch_size: int
    classes: int = 0  # of the targets of mixed images

    def only(self, chosen: Tensor) -> Self:
        """The chosen images as a training set."""
        return replace(self, images=self.images[chosen], targets=self.targets[chosen])

    def epoch(self, draws: torch.Generator, phase: Phase, team: Team) -> tuple[int, Iterator[Batch]]:
        """The number of batches in an epoch, and this process's share of each."""
        parts = batches(len(self.targets), self.batch_size, draws)
        return len(parts), self._shares(parts, draws, phase, team)

    def _shares(self, parts: list[Tensor], draws: torch.Generator, phase: Phase, team: Team) -> Iterator[Batch]:
        # To mix images every process augments whole batches: a partner may be in the share of another one.
        fed = feed(self.images, parts, draws if phase.augment else None, None if phase.mixing else team.rows)
        for part, (chosen, pixels) in zip(parts, fed, strict=True):
            share = Share(torch.isin(part, chosen).nonzero().flatten(), len(part))
            readable = len(chosen)
            if not readable:  # a black image that counts 0, because the others wait
                share, chosen = Share(torch.tensor([0]), len(part)), part[:1]
                pixels = pixels.new_zeros(1, *pixels.shape[1:])
            inputs, targets = self._augmented(pixels, self.targets[chosen], draws, phase, share)
            if phase.mixing:
                own = torch.isin(share.rows, team.rows(len(part))).nonzero().flatten()
                readable = min(readable, len(own))
                own = own if readable else torch.tensor([0])
                inputs, targets = inputs[own], targets[own]
            counts = team.images(readable, len(part))
            yield Batch(inputs, targets, counts, counts * team.size / len(part))

    def _augmented(
        self, pixels: Tensor, targets: Tensor, draws: torch.Generator, phase: Phase, share: Share
    ) -> tuple[Tensor, Tensor]:
        there = to_device(pixels, self.targets.device)
        if not phase.augment:
            return self.transform.normalise(there), targets
        inputs = self.transform.augment(there, draws, share, phase.augmentation or ())
        if not phase.mixing:
            return inputs, targets
        mix = mixed_up if "mixup" in phase.mixing else cut_and_mixed
        return mix(inputs, F.one_hot(targets, self.classes).float(), draws)
