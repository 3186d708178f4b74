"""A dataset split into tasks, and the images that each may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from podnet.data.dataset import Dataset
from podnet.data.images import Images
from podnet.errors import ConfigError
from podnet.grouping import positions_by_class


@dataclass(frozen=True)
class Task:
    """One group of new classes. Labels follow the order of learning; the new ones are old to seen - 1."""

    index: int
    old: int  # number of classes known before
    new: int
    class_names: tuple[str, ...]  # of the new classes
    train_images: Images  # of the new classes only, except for those in `refreshed`
    train_targets: Tensor
    test_images: Images  # of all classes seen
    test_targets: Tensor
    refreshed: tuple[int, ...] = ()  # labels of known classes that get more images, ascending

    @property
    def seen(self) -> int:
        return self.old + self.new

    @property
    def taught(self) -> tuple[int, ...]:
        """Labels of the classes that the task has training images of."""
        return (*self.refreshed, *range(self.old, self.seen))


@dataclass(frozen=True)
class Tasks:
    """A dataset split into tasks, each made on demand. `cumulative` is for joint training, which uses all data."""

    dataset: Dataset
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    validation: float = 0.0
    cumulative: bool = False
    images_per_class: int | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Task:
        index = range(len(self))[index]
        seen = list(accumulate(self.sizes))[index]
        old = seen - self.sizes[index]
        data = self.dataset
        train, _ = self._split(range(0 if self.cumulative else old, seen))
        if self.validation:
            tested = self._split(range(seen))[1]
            test_images, test_targets = data.train_images[tested], data.train_targets[tested]
        else:
            tested = torch.cat([self._tested[label] for label in self.order[:seen]])
            test_images, test_targets = data.test_images[tested], data.test_targets[tested]
        return Task(
            index=index,
            old=old,
            new=seen - old,
            class_names=tuple(data.class_names[c] for c in self.order[old:seen]),
            train_images=data.train_images[train],
            train_targets=self._position[data.train_targets[train]],
            test_images=test_images,
            test_targets=self._position[test_targets],
        )

    @cached_property
    def _trained(self) -> dict[int, Tensor]:
        """Indices of the training images of each class."""
        return positions_by_class(self.dataset.train_targets)

    @cached_property
    def _tested(self) -> dict[int, Tensor]:
        """Indices of the test images of each class."""
        return positions_by_class(self.dataset.test_targets)

    @cached_property
    def _position(self) -> Tensor:
        """The position of each class of the dataset in the order; -1 for classes that are not in it."""
        position = torch.full((len(self.dataset.class_names),), -1)
        position[list(self.order)] = torch.arange(len(self.order))
        return position

    def _split(self, positions: range) -> tuple[Tensor, Tensor]:
        """Training indices of some classes: those to train on, and the last `validation` share of each, held out."""
        kept, held_out = [], []
        for label in self.order[positions.start : positions.stop]:
            own = self._trained[label][: self.images_per_class]
            cut = len(own) - round(self.validation * len(own))
            kept.append(own[:cut])
            held_out.append(own[cut:])
        return torch.cat(kept), torch.cat(held_out)


def class_incremental(
    dataset: Dataset,
    order: Sequence[int],
    base: int,
    increment: int,
    validation: float = 0.0,
    cumulative: bool = False,
    images_per_class: int | None = None,
) -> Tasks:
    """First `base` classes of the order, then `increment` more per task. With `validation`, that share of each class's
    training images (the first `images_per_class` of them) is held out and replaces the test images.
    """
    _check_sizes(len(order), base, increment)
    sizes = (base,) + (increment,) * ((len(order) - base) // increment)
    if images_per_class is not None and images_per_class < 1:
        raise ConfigError(f"images_per_class is {images_per_class}; it must be at least 1.")
    counts = images_of_each_class(dataset, images_per_class)
    if not 0 <= validation < 1:
        raise ConfigError(f"validation is {validation}; give a share to hold out, from 0 to below 1.")
    for label in order if validation else ():
        if round(validation * int(counts[label])) in (0, int(counts[label])):
            raise ConfigError(
                f"validation {validation} of the {int(counts[label])} images of class {dataset.class_names[label]!r} "
                "leaves no images for training or none for validation; choose another share."
            )
    return Tasks(dataset, tuple(order), sizes, validation, cumulative, images_per_class)


def images_of_each_class(dataset: Dataset, limit: int | None = None) -> Tensor:
    """The number of training images of each class; at most `limit` are used."""
    counts = torch.bincount(dataset.train_targets, minlength=len(dataset.class_names))
    return counts if limit is None else counts.clamp(max=limit)


def _check_sizes(classes: int, base: int, increment: int) -> None:
    if not 1 <= base <= classes:
        raise ConfigError(f"base is {base}; with {classes} classes it must be from 1 to {classes}.")
    if increment < 1:
        raise ConfigError(f"increment is {increment}; it must be at least 1.")
    if base < classes and (classes - base) % increment:
        fits = [n for n in range(1, classes - base + 1) if (classes - base) % n == 0]
        raise ConfigError(
            f"increment {increment} does not divide the {classes - base} classes left after the base of {base}; "
            f"use one of {', '.join(map(str, fits))}, or another base."
        )
