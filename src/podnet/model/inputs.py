"""What the estimator is given: images in memory or files, and labels of several kinds, as photos and class names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from podnet.data.collection import Collection, Photo, class_name, in_order, measure_all
from podnet.data.decode import encode
from podnet.data.photos import MISSING
from podnet.io.files import expanded

Label = str | int | float | bool
IMAGES = "uint8 images, (N, H, W) or (N, H, W, channels), or a list of paths, Pillow images or such arrays"

WIDE = 16  # pixels; no stack of greyscale images is so high and only 3 or 4 pixels wide


def to_sources(X: Any) -> list[Path | bytes]:
    """A file, or the content of one, for each image."""
    if isinstance(X, str | os.PathLike | Image.Image):
        raise ValueError(f"X is a single {type(X).__name__}; give {IMAGES}.")
    images = X if isinstance(X, list | tuple) else np.asarray(X)
    if isinstance(images, np.ndarray) and (images.ndim not in (1, 3, 4) or images.dtype.kind in "fc"):
        raise ValueError(f"X is an array of {images.dtype} with {images.ndim} dimensions; give {IMAGES}.")
    if isinstance(images, np.ndarray) and images.ndim == 3 and images.shape[2] in (3, 4) and images.shape[1] >= WIDE:
        raise ValueError(f"X has the shape {images.shape}, which looks like one image; give [image].")
    if not len(images):
        raise ValueError("X has no images (0 samples); at least one is needed.")
    return [_source(image) for image in images]


def _source(image: Any) -> Path | bytes:
    if isinstance(image, str | os.PathLike):
        return expanded(image)
    if isinstance(image, np.ndarray):
        pixels = image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,), (4,)):
            raise ValueError(f"X contains an array of {image.dtype} with shape {image.shape}; give {IMAGES}.")
        image = Image.fromarray(np.ascontiguousarray(pixels))
    if not isinstance(image, Image.Image):
        raise ValueError(f"X contains a {type(image).__name__}; give {IMAGES}.")
    return encode(image)


def to_labels(y: Any) -> list[Label]:
    """Labels as Python values."""
    if y is None:
        raise ValueError("PODNetClassifier requires y to be passed, but the target y is None.")
    if not isinstance(y, list | tuple):
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
    labels = [plain(label) for label in y]
    if wrong := [label for label in labels if type(label) not in (str, int, float, bool) or label != label]:
        raise ValueError(f"y has the label {wrong[0]!r}; labels must be text, numbers or booleans.")
    return labels


def meanings(labels: Sequence[Label], known: Mapping[str, Label]) -> dict[str, Label]:
    """Class name -> label, of known classes and new ones; the name is the text of the label."""
    meant = dict(known)
    for label in labels:
        other = meant.setdefault(class_name(str(label)), label)
        if type(other) is not type(label):
            raise ValueError(f"y has the labels {label!r} and {other!r}, which both read {label}; change one of them.")
    if len(set(meant.values())) < len(meant):
        raise ValueError("two labels are equal but of different types, such as 1 and 1.0; use one type.")
    return meant


def collected(sources: Sequence[Path | bytes], names: Sequence[str]) -> Collection:
    """The images as photos of classes, each once; one that cannot be read is an error."""
    photos: dict[str, Photo] = {}
    for number, (source, name, found) in enumerate(zip(sources, names, measure_all(sources), strict=True)):
        if isinstance(found, str):
            which = f"image {number}" if isinstance(source, bytes) else f"{source}"
            if found == MISSING:
                raise ValueError(f"{which} does not exist.")
            raise ValueError(f"{which} of X cannot be read ({found}); fix it or leave it out.")
        photos.setdefault(found[1], Photo(source, name, *found))
    if lost := set(names) - {photo.label for photo in photos.values()}:
        raise ValueError(f"all images of class {min(lost)!r} are also given for another class; give others.")
    return Collection(in_order(photos.values()))


def plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
