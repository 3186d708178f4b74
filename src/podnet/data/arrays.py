"""Datasets from arrays in memory."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.dataset import Dataset
from podnet.data.images import shape_of
from podnet.errors import MALFORMED, DataError, in_words

# What numpy raises for a damaged .npz file; MemoryError if it claims a huge shape.
BROKEN = (*MALFORMED, OSError, EOFError, BadZipFile, zlib.error, MemoryError)


def as_images(array: ArrayLike) -> Tensor:
    """uint8 images (N, H, W) or (N, H, W, C) with C of 1 or 3 -> tensor (N, C, H, W); floats must be whole 0 to 255."""
    pixels = np.asarray(array)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3):
        raise DataError(f"images have shape {pixels.shape}; expected (N, H, W) or (N, H, W, C) with 1 or 3 channels.")
    if pixels.dtype != np.uint8:
        if not np.issubdtype(pixels.dtype, np.number):
            raise DataError(f"images have type {pixels.dtype}; expected uint8.")
        if not np.isfinite(pixels).all():
            raise DataError("some pixels are NaN or infinite; fix or leave out those images.")
        if pixels.size and (pixels.min() < 0 or pixels.max() > 255 or (pixels != np.round(pixels)).any()):
            raise DataError(
                f"pixels range from {pixels.min():g} to {pixels.max():g}; expected whole numbers from 0 to 255 "
                "(multiply images in [0, 1] by 255 and round)."
            )
    return torch.from_numpy(np.ascontiguousarray(pixels.astype(np.uint8).transpose(0, 3, 1, 2)))


def from_arrays(
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """A dataset of (images, integer labels) pairs; mean and standard deviation come from the training images."""
    images, test_images = as_images(train[0]), as_images(test[0])
    if len(images) == 0:
        raise DataError(f"{name}: there are no training images.")
    if images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f"{name}: training images are {tuple(images.shape[1:])}, test images {tuple(test_images.shape[1:])}; "
            "make them the same size."
        )
    targets, test_targets = (_as_labels(labels, name) for labels in (train[1], test[1]))
    if len(targets) != len(images):
        raise DataError(f"{name}: {len(images)} training images but {len(targets)} labels; give one label per image.")
    if class_names is None:
        highest = int(targets.max())
        if highest >= len(targets):
            raise DataError(
                f"{name}: a label is {highest}, but there are only {len(targets)} training images; "
                "number the classes from 0 without gaps, or give class_names."
            )
        class_names = [str(label) for label in range(highest + 1)]
    mean, std = zip(*map(_mean_and_std, images.unbind(1)), strict=True)
    transform = Transform(mean, std, pad=max(1, min(images.shape[2:]) // 8))
    return Dataset(name, images, targets, test_images, test_targets, tuple(class_names), shape_of(images), transform)


def _mean_and_std(pixels: Tensor) -> tuple[float, float]:
    """For uint8 values scaled to [0, 1], from a histogram, without a copy as floats.

    The deviation is never near 0; where all values are equal it is 1, so that an augmented one does not become huge.
    """
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    values = torch.arange(256, dtype=torch.float64) / 255
    total = counts.sum()
    mean = (counts * values).sum() / total
    variance = (counts * (values - mean).square()).sum() / (total - 1).clamp(min=1)
    deviation = float(variance.sqrt())
    return float(mean), max(deviation, 1e-3) if deviation > 1e-6 else 1.0


def _as_labels(labels: ArrayLike, name: str) -> Tensor:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name}: labels must be a list of whole numbers; got {array.dtype} of shape {array.shape}.")
    return torch.from_numpy(array.astype(np.int64))


def _text(name: object) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def load_npz(path: Path) -> Dataset:
    """A dataset from a .npz file with x_train, y_train, x_test, y_test and optionally class_names; no pickles."""
    wanted = ("x_train", "y_train", "x_test", "y_test")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            found = stored.files
            arrays = {name: stored[name] for name in (*wanted, "class_names") if name in found}  # and nothing else
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; give the path of a .npz file.") from error
    except BROKEN as error:
        raise DataError(
            f"{path} is not a .npz file of plain arrays, or is damaged; write it with numpy.savez."
        ) from error
    if missing := [name for name in wanted if name not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}; it contains {in_words(found) if found else 'nothing'}.")
    names = [_text(name) for name in np.atleast_1d(arrays["class_names"])] if "class_names" in arrays else None
    train, test = (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    return from_arrays(train, test, names, name=path.stem)
