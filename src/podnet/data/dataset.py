"""A dataset: images and labels, with what training needs to know about them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.images import Images
from podnet.errors import DataError, printable, some

MOST_DIGITS = 100


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Files and folders that cannot be read are a mistake of the user's."""
    try:
        yield
    except OSError as error:
        place = printable(os.fsdecode(error.filename or path))  # bytes, where names need not be Unicode
        raise DataError(f"{place} cannot be read: {error.strerror}; check its permissions.") from error


def is_number(word: str) -> bool:
    """Whether `int` takes a word from a file; it refuses those of thousands of digits."""
    return word.isdecimal() and len(word) <= MOST_DIGITS


@dataclass(frozen=True)
class Dataset:
    """Labelled images split into train and test; labels are 0 ... len(class_names) - 1."""

    name: str
    train_images: Images
    train_targets: Tensor  # (N,) int64
    test_images: Images
    test_targets: Tensor
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width
    transform: Transform  # statistics and allowed augmentation

    def __post_init__(self) -> None:
        splits = (("training", self.train_images, self.train_targets), ("test", self.test_images, self.test_targets))
        for part, images, targets in splits:
            if len(images) != len(targets):
                raise DataError(
                    f"{self.name}: {len(images)} {part} images but {len(targets)} labels; give one label per image."
                )
            if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(self.class_names):
                raise DataError(
                    f"{self.name}: the {part} labels go from {int(targets.min())} to {int(targets.max())}, "
                    f"but there are {len(self.class_names)} classes (0 to {len(self.class_names) - 1})."
                )
            counts = torch.bincount(targets, minlength=len(self.class_names))
            if empty := [self.class_names[i] for i in (counts == 0).nonzero().flatten().tolist()]:
                raise DataError(
                    f"{self.name}: no {part} images of {some(empty)}; add at least one per class, "
                    "or leave the class out."
                )
