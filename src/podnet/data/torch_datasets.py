"""Datasets of torch and torchvision: any that give images and labels by index."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from podnet.data.arrays import from_arrays
from podnet.data.dataset import Dataset
from podnet.data.decode import without_alpha
from podnet.data.imagenet import ENDINGS, Split, photo_dataset
from podnet.data.photos import Unreadable
from podnet.data.sources import FileNames
from podnet.errors import DataError, some

LOADER = "default_loader"  # torchvision's; others may do anything


class Indexed(Protocol):
    """A dataset of torch: a length, and pairs of an image and its label by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_torch(
    train: Indexed,
    test: Indexed,
    class_names: Sequence[str] | None = None,
    name: str = "torch",
    image_size: int = 224,
    workers: int = 0,
    unreadable: Unreadable = "error",
) -> Dataset:
    """A dataset for `class_incremental` and `Learner` from two of torch's; give them without augmentation.

    Images are PIL pictures, uint8 arrays (H, W) or (H, W, C), uint8 tensors (C, H, W), or float tensors in [0, 1], all
    of one size; they are read once, into memory. Labels are whole numbers from 0. Class names are the given ones, those
    in `train.classes`, or the labels.

    A torchvision ImageFolder without a transform, or a Subset of one, stays on disk. Its photos may have any size and
    are read when needed, as those of ImageNet: cut to `image_size` by `workers` processes.
    """
    known, other = _class_names(train), _class_names(test)
    if known is not None and other is not None and known != other:
        raise DataError(
            f"{name}: the classes of train are {some(known)}, those of test {some(other)}; they must be the same, in "
            "the same order, because labels are positions in them."
        )
    names = class_names if class_names is not None else known
    files, test_files = _files(train), _files(test)
    if names is not None and files is not None and test_files is not None:  # such datasets have names
        classes = tuple(map(str, names))
        splits = (_split(files, classes, name), _split(test_files, classes, name))
        return photo_dataset(name, *splits, classes, image_size, workers, unreadable)
    return from_arrays(_arrays(train, "train"), _arrays(test, "test"), names, name)


def _class_names(dataset: Any) -> Sequence[str] | None:
    """What torchvision knows; of a part, what the whole knows."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    found = getattr(dataset, "classes", None)
    return [str(each) for each in found] if isinstance(found, (list, tuple)) else None


def _files(dataset: Any) -> list[tuple[str, int]] | None:
    """Path and label of each photo of an untransformed ImageFolder or a part of one; None for other datasets."""
    if isinstance(dataset, Subset):
        whole = _files(dataset.dataset) if _reads_as(dataset, "Subset") else None
        return None if whole is None else [whole[i] for i in dataset.indices]
    samples = getattr(dataset, "samples", None)
    changed = any(getattr(dataset, each, None) is not None for each in ("transform", "target_transform", "transforms"))
    changed |= getattr(getattr(dataset, "loader", None), "__name__", LOADER) != LOADER
    changed |= not _reads_as(dataset, "DatasetFolder", "ImageFolder")
    if not isinstance(samples, list) or changed or _class_names(dataset) is None:
        return None
    photos = all(os.fsencode(path).lower().endswith(ENDINGS) for path, _ in samples)
    return [(os.fspath(path), int(label)) for path, label in samples] if photos else None


def _reads_as(dataset: Any, *kinds: str) -> bool:
    """Whether its items are read by a class of this name: a class of the user's own may change pictures or labels."""
    read = getattr(type(dataset), "__getitem__", None)
    return getattr(read, "__qualname__", "") in [f"{kind}.__getitem__" for kind in kinds]


def _split(files: Sequence[tuple[str, int]], classes: tuple[str, ...], name: str) -> Split:
    for path, label in files:
        if not 0 <= label < len(classes):
            raise DataError(f"{name}: the label of {path} is {label}, but there are {len(classes)} classes.")
    names = [os.fsencode(os.path.abspath(path)).lstrip(b"/") for path, _ in files]
    labels = np.array([label for _, label in files], dtype=np.int64)
    return Split(FileNames.pack(Path("/"), names), labels, classes)


def _arrays(dataset: Indexed, part: str) -> tuple[np.ndarray, np.ndarray]:
    """All images (N, H, W, C) uint8 and labels (N,) of a dataset."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(f"the {part} dataset is {type(dataset).__name__}; it needs a length, and items by their index.")
    images: list[np.ndarray] = []
    labels: list[int] = []
    for index in range(len(dataset)):
        where = f"{part} item {index}"
        image, label = _pair(dataset[index], where)
        images.append(_pixels(image, where))
        labels.append(label)
        if images[-1].shape != images[0].shape:
            advice = "bring all images to one size, for instance with torchvision's Resize and CenterCrop"
            if images[-1].shape[:2] == images[0].shape[:2]:
                advice = "make all of them colour images, for instance with Pillow's convert('RGB')"
            found = f"{where} has the shape {images[-1].shape}, the first {images[0].shape} (height, width, channels)"
            raise DataError(f"{found}; {advice}.")
    if not images:
        raise DataError(f"the {part} dataset is empty.")
    return np.stack(images), np.array(labels, dtype=np.int64)


def _pair(item: Any, where: str) -> tuple[Any, int]:
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise DataError(f"{where} is {type(item).__name__} without a label; give pairs of an image and its label.")
    image, label = item[:2]
    number = label.item() if isinstance(label, (Tensor, np.ndarray)) and math.prod(label.shape) == 1 else label
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number >= 2**63:
        raise DataError(f"the label of {where} is {label!r}; it must be a whole number, the class from 0 on.")
    return image, int(number)


def _pixels(image: Any, where: str) -> np.ndarray:
    """uint8 pixels (H, W, C) with 1 or 3 channels."""
    if isinstance(image, Image.Image):
        pixels = np.asarray(without_alpha(image))
    elif isinstance(image, Tensor):
        found = image.detach().cpu()
        if found.is_floating_point():  # in [0, 1], as torchvision's ToTensor makes them
            low, high = (float(found.min()), float(found.max())) if found.numel() else (0.0, 0.0)
            if not (low >= 0 and high <= 1):  # NaN is neither
                raise DataError(
                    f"{where} has values from {low:.3g} to {high:.3g}; give uint8 pixels or floats from 0 to 1, "
                    "without Normalize: the statistics are found here."
                )
            found = (found * 255).round().to(torch.uint8)
        pixels = found.numpy()
        pixels = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
    elif isinstance(image, np.ndarray):
        pixels = image
    else:
        raise DataError(f"{where} is {type(image).__name__}; give a PIL picture, a uint8 array or a tensor.")
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        shape = image.size if isinstance(image, Image.Image) else image.shape
        raise DataError(
            f"{where} is {pixels.dtype} of shape {shape}; "
            "give uint8 pixels with 1 or 3 channels: arrays (H, W, C), tensors (C, H, W)."
        )
    return pixels
