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

    name: str
    load: Callable[..., Dataset]  # takes the path, if one is needed
    family: str  # the presets of a method to use
    classes: int | None  # None: as many as the file has
    order: str = "random"
    options: tuple[str, ...] = ()  # those of PHOTO_OPTIONS that `load` takes
    needs_path: bool = True

    @property
    def summary(self) -> str:
        return SUMMARIES[self.name]

    @property
    def photos(self) -> bool:
        """Whether its images are files, cut to a size when they are read."""
        return "unreadable" in self.options


PHOTO_READING = ("image_size", "unreadable", "workers")
PHOTO_OPTIONS = ("subset", *PHOTO_READING)

OFFICIAL = "the official files: the archive or its folder, python or binary version"
SUMMARIES = {
    "digits": "scikit-learn's handwritten digits, 8x8, embedded",
    "cifar10": f"CIFAR-10, {OFFICIAL}",
    "cifar100": f"CIFAR-100, {OFFICIAL}",
    "npz": "your own arrays: a .npz file with x_train, y_train, x_test, y_test and optionally class_names",
    "imagenet": "photos in the ILSVRC layout: "
    "train/SYNSET/*.JPEG, val/SYNSET/*.JPEG (or lists train.txt, val.txt: path label)",
    "imagenet100": "a hundred classes of ImageNet: "
    "--subset released (the first 100 synsets), ucir (seed 1993) or a file",
    "imagenet1000": "ImageNet (ILSVRC 2012), all 1000 classes, in the same layouts",
    "tinyimagenet": "TinyImageNet, the folder tiny-imagenet-200: "
    "train/SYNSET/images, val/images, val/val_annotations.txt",
    "cub200": "CUB-200-2011, the folder CUB_200_2011: images, images.txt, image_class_labels.txt, train_test_split.txt",
}
KNOWN = (
    Source("digits", load_digits, "digits", 10, needs_path=False),
    Source("cifar10", load_cifar10, "cifar", 10, options=("image_size",)),
    Source("cifar100", load_cifar100, "cifar", 100, "paper:0", options=("image_size",)),
    Source("npz", load_npz, "cifar", None),
    Source("imagenet", load_imagenet, "imagenet", None, options=PHOTO_OPTIONS),
    Source("imagenet100", partial(load_imagenet, subset="released"), "imagenet", 100, "paper:0", PHOTO_OPTIONS),
    Source("imagenet1000", load_imagenet, "imagenet", 1000, "paper:0", PHOTO_READING),
    Source("tinyimagenet", load_tinyimagenet, "imagenet", 200, options=PHOTO_READING),
    Source("cub200", load_cub200, "imagenet", 200, options=PHOTO_READING),
)
SOURCES = {source.name: source for source in KNOWN}


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
