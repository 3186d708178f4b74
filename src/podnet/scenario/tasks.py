"""A dataset split into tasks, and the images that each may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    """A dataset split into tasks, each made on demand. `cumulative` is for joint training, which uses all data.

    With `visits`, each class's training images are cut into that many equal parts, in their order. The first part comes
    with the class's own task, the next ones with the tasks after it; the last task brings all that are left.
    """

    dataset: Dataset
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    validation: float = 0.0
    cumulative: bool = False
    images_per_class: int | None = None
    visits: int = 1

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Task:
        index = range(len(self))[index]
        old, seen = self._ends[index : index + 2]
        data = self.dataset
        train = self._brought(index)
        test = torch.cat(self._tested[:seen])
        test_images, test_targets = data.test_images, data.test_targets
        if self.validation:
            test_images, test_targets = data.train_images, data.train_targets
        return Task(
            index=index,
            old=old,
            new=seen - old,
            class_names=tuple(data.class_names[c] for c in self.order[old:seen]),
            train_images=data.train_images[train],
            train_targets=self._position[data.train_targets[train]],
            test_images=test_images[test],
            test_targets=self._position[test_targets[test]],
            refreshed=() if self.cumulative else tuple(range(self._ends[self._oldest(index)], old)),
        )

    def visited(self, visits: int) -> Tasks:
        """The same tasks with the training images of each class in so many parts; cumulative tasks have all anyway."""
        if visits < 1:
            raise ConfigError(f"visits is {visits}; it must be at least 1.")
        counts = [len(own) for own, _ in self._split]
        if (fewest := min(counts)) < visits and not self.cumulative:
            name = self.dataset.class_names[self.order[counts.index(fewest)]]
            raise ConfigError(
                f"visits is {visits}, but class {name!r} has only {fewest} training images; "
                "lower it, or add images to the class."
            )
        return replace(self, visits=visits)

    def images_at_first(self) -> list[int]:
        """How many training images of each class come with its own task, in the order of the classes."""
        counts = [len(own) for own, _ in self._split]
        in_parts = self._ends[-2]  # classes of the last task come whole
        return [-(-count // self.visits) for count in counts[:in_parts]] + counts[in_parts:]

    @cached_property
    def _ends(self) -> list[int]:
        """Classes known before each task, and after the last."""
        return [0, *accumulate(self.sizes)]

    @cached_property
    def _split(self) -> list[tuple[Tensor, ...]]:
        """Indices of each class's training images, in the order: those to train on, and the last share, held out."""
        found = positions_by_class(self.dataset.train_targets)
        given = [found[label][: self.images_per_class] for label in self.order]
        return [own.tensor_split([len(own) - round(self.validation * len(own))]) for own in given]

    @cached_property
    def _tested(self) -> list[Tensor]:
        """Indices of each class's test images, in the order."""
        if self.validation:
            return [held_out for _, held_out in self._split]
        found = positions_by_class(self.dataset.test_targets)
        return [found[label] for label in self.order]

    @cached_property
    def _position(self) -> Tensor:
        """The position of each class of the dataset in the order; -1 for classes that are not in it."""
        position = torch.full((len(self.dataset.class_names),), -1)
        position[list(self.order)] = torch.arange(len(self.order))
        return position

    def _oldest(self, index: int) -> int:
        """The oldest task whose classes get images in this one."""
        return max(0, index - self.visits + 1)

    def _brought(self, index: int) -> Tensor:
        """Indices of the training images that a task brings."""
        if self.cumulative:
            return torch.cat([own for own, _ in self._split[: self._ends[index + 1]]])
        parts: list[Tensor] = []
        for task in range(self._oldest(index), index + 1):
            visit = index - task
            until = self.visits if index == len(self) - 1 else visit + 1
            for own, _ in self._split[self._ends[task] : self._ends[task + 1]]:
                parts += own.tensor_split(self.visits)[visit:until]
        return torch.cat(parts)


def class_incremental(
    dataset: Dataset,
    order: Sequence[int],
    base: int,
    increment: int | Sequence[int],
    validation: float = 0.0,
    cumulative: bool = False,
    images_per_class: int | None = None,
) -> Tasks:
    """First `base` classes of the order, then `increment` more per task, or one number for each of the later tasks.

    With `validation`, that share of each class's training images (the first `images_per_class` of them) is held out
    and replaces the test images.
    """
    sizes = task_sizes(len(order), base, increment)
    if images_per_class is not None and images_per_class < 1:
        raise ConfigError(f"images_per_class is {images_per_class}; it must be at least 1.")
    counts = torch.bincount(dataset.train_targets).clamp(max=images_per_class or len(dataset.train_targets)).tolist()
    if not 0 <= validation < 1:
        raise ConfigError(f"validation is {validation}; give a share to hold out, from 0 to below 1.")
    for label in order if validation else ():
        if round(validation * counts[label]) in (0, counts[label]):
            raise ConfigError(
                f"validation {validation} of the {counts[label]} images of class {dataset.class_names[label]!r} "
                "leaves no images for training or none for validation; choose another share."
            )
    return Tasks(dataset, tuple(order), sizes, validation, cumulative, images_per_class)


def task_sizes(classes: int, base: int, increment: int | Sequence[int]) -> tuple[int, ...]:
    """The number of new classes of each task; `increment` is that of all later tasks, or one for each of them."""
    if isinstance(increment, int):
        if not 1 <= base <= classes:
            raise ConfigError(f"base is {base}; with {classes} classes it must be from 1 to {classes}.")
        if increment < 1:
            raise ConfigError(f"increment is {increment}; it must be at least 1.")
        left = classes - base
        if left % increment:
            fits = ", ".join(str(n) for n in range(1, left + 1) if left % n == 0)
            raise ConfigError(
                f"increment {increment} does not divide the {left} classes left after the base of {base}; "
                f"use one of {fits}, or another base."
            )
        return (base,) + (increment,) * (left // increment)
    sizes = (base, *increment)
    if min(sizes) < 1:
        raise ConfigError(f"sizes are {sizes_in_words(sizes)}; each task needs at least 1 class.")
    if sum(sizes) != classes:
        raise ConfigError(f"sizes {sizes_in_words(sizes)} are {sum(sizes)} classes, but the order has {classes}.")
    return sizes


def sizes_in_words(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))
