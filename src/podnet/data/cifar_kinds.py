"""CIFAR-10 and CIFAR-100: the names and checksums of their official files, and how they are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Version:
    """The files of one official version."""

    folder: str  # in the archive
    train: tuple[str, ...]
    test: str
    names: str  # of the classes

    @property
    def files(self) -> tuple[str, ...]:
        return *self.train, self.test, self.names


@dataclass(frozen=True)
class Kind:
    """What distinguishes the two datasets."""

    name: str
    title: str
    archive: str  # how the names of the archives begin
    classes: int
    labels: str  # their key in the Python version, in words for the reader
    label_names: str
    label_bytes: int  # of a binary record, before the pixels; the last is the label
    python: Version
    binary: Version
    checksums: Mapping[str, str]
    mean: tuple[float, ...]  # of the training images: red, green, blue
    std: tuple[float, ...]

    @property
    def wanted(self) -> str:
        python, binary = ", ".join(self.python.files), ", ".join(self.binary.files)
        return f"{python} (Python version) or {binary} (binary version)"

    @property
    def adjective(self) -> str:
        return "fine " if self.labels.startswith("fine") else ""


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10 = Kind(
    name="cifar10",
    title="CIFAR-10",
    archive="cifar-10-",
    classes=10,
    labels="labels",
    label_names="label_names",
    label_bytes=1,
    python=Version("cifar-10-batches-py", BATCHES, "test_batch", "batches.meta"),
    binary=Version(
        "cifar-10-batches-bin", tuple(f"{batch}.bin" for batch in BATCHES), "test_batch.bin", "batches.meta.txt"
    ),
    checksums={
        "data_batch_1.bin": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "md5:5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "md5:53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
        "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
        "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
        "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "md5:40351d587109b95175f43aff81a1287e",
        "batches.meta": "md5:5ff9c542aee3614f3951f8cda6e48888",
    },
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Kind(
    name="cifar100",
    title="CIFAR-100",
    archive="cifar-100",
    classes=100,
    labels="fine_labels",
    label_names="fine_label_names",
    label_bytes=2,  # the coarse one first
    python=Version("cifar-100-python", ("train",), "test", "meta"),
    binary=Version("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt"),
    checksums={
        "train.bin": "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "sha1:8fb6623e830365ff53cf14adec797474f5478006",
        "train": "md5:16019d7e3df5f24257cddd939b257f8d",
        "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "md5:7973b15100ade9c7d40fb424638fde48",
    },
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)
