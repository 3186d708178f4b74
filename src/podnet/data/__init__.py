"""Images: datasets by name, photos, decoding, augmentation. May import `io` and the modules at the top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from podnet.data.arrays import from_arrays, load_npz
from podnet.data.augment import Transform
from podnet.data.cifar import load_cifar10, load_cifar100
from podnet.data.dataset import Dataset
from podnet.data.digits import load_digits
from podnet.data.imagenet import load_imagenet
from podnet.data.layouts import load_cub200, load_tinyimagenet
from podnet.data.photos import Photos
from podnet.data.torch_datasets import from_torch
from podnet.errors import ConfigError, one_of
from podnet.io.files import expanded

__all__ = [
    "PHOTO_OPTIONS",
    "SOURCES",
    "Dataset",
    "Photos",
    "Source",
    "Transform",
    "from_arrays",
    "from_torch",
    "load",
    "load_cifar10",
    "load_cifar100",
    "load_cub200",
    "load_imagenet",
    "load_tinyimagenet",
]


@dataclass(frozen=True)
class Source:
    """A kind of dataset: how to load it, and the protocol that suits it."""

    summary: str
    load: Callable[..., Dataset]  # takes the path, if one is needed
    family: str  # the presets of a method to use
    classes: int | None  # None: as many as the file has
    needs_path: bool = True
    order: str = "random"
    options: tuple[str, ...] = ()  # those of PHOTO_OPTIONS that `load` takes

    @property
    def photos(self) -> bool:
        """Whether its images are files, cut to a size when they are read."""
        return "unreadable" in self.options


PHOTO_READING = ("image_size", "unreadable", "workers")
PHOTO_OPTIONS = ("subset", *PHOTO_READING)

SOURCES: dict[str, Source] = {
    "digits": Source(
        "scikit-learn's handwritten digits, 8x8, embedded", load_digits, "digits", classes=10, needs_path=False
    ),
    "cifar10": Source(
        "CIFAR-10, the official files: the archive or its folder, python or binary version",
        load_cifar10,
        "cifar",
        classes=10,
        options=("image_size",),
    ),
    "cifar100": Source(
        "CIFAR-100, the official files: the archive or its folder, python or binary version",
        load_cifar100,
        "cifar",
        classes=100,
        order="paper:0",
        options=("image_size",),
    ),
    "npz": Source(
        "your own arrays: a .npz file with x_train, y_train, x_test, y_test and optionally class_names",
        load_npz,
        "cifar",
        classes=None,
    ),
    "imagenet": Source(
        "photos in the ILSVRC layout: train/SYNSET/*.JPEG, val/SYNSET/*.JPEG (or lists train.txt, val.txt: path label)",
        load_imagenet,
        "imagenet",
        classes=None,
        options=PHOTO_OPTIONS,
    ),
    "imagenet100": Source(
        "a hundred classes of ImageNet: --subset released (the first 100 synsets), ucir (seed 1993) or a file",
        partial(load_imagenet, subset="released"),
        "imagenet",
        classes=100,
        order="paper:0",
        options=PHOTO_OPTIONS,
    ),
    "imagenet1000": Source(
        "ImageNet (ILSVRC 2012), all 1000 classes, in the same layouts",
        load_imagenet,
        "imagenet",
        classes=1000,
        order="paper:0",
        options=PHOTO_READING,
    ),
    "tinyimagenet": Source(
        "TinyImageNet, the folder tiny-imagenet-200: train/SYNSET/images, val/images, val/val_annotations.txt",
        load_tinyimagenet,
        "imagenet",
        classes=200,
        options=PHOTO_READING,
    ),
    "cub200": Source(
        "CUB-200-2011, the folder CUB_200_2011: images, images.txt, image_class_labels.txt, train_test_split.txt",
        load_cub200,
        "imagenet",
        classes=200,
        options=PHOTO_READING,
    ),
}


def load(name: str, path: str | None, options: Mapping[str, Any] | None = None) -> Dataset:
    """The dataset of that name at the user's path; `options` are the given ones of PHOTO_OPTIONS."""
    source = SOURCES[one_of("dataset", name, SOURCES)]
    for option in options or {}:
        if option not in source.options:
            raise ConfigError(f"dataset {name} does not use --{option.replace('_', '-')}; leave it out.")
    if not source.needs_path:
        if path is not None:
            raise ConfigError(f"dataset {name} is embedded and does not use --data-path; leave it out.")
        return source.load()
    if path is None:
        raise ConfigError(f"dataset {name} needs --data-path: {source.summary}.")
    return source.load(expanded(path), **options or {})
