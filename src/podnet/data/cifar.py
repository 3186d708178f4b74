"""CIFAR-100 from its official files: the Python or the binary version, as archive or extracted."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.dataset import Dataset
from podnet.data.unpickle import load_plain
from podnet.errors import ConfigError, DataError

OFFICIAL: Mapping[str, str] = {
    "train.bin": "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
    "test.bin": "sha1:8fb6623e830365ff53cf14adec797474f5478006",
    "train": "md5:16019d7e3df5f24257cddd939b257f8d",
    "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "md5:7973b15100ade9c7d40fb424638fde48",
}
PYTHON = ("train", "test", "meta")
BINARY = ("train.bin", "test.bin", "fine_label_names.txt")
WANTED = f"{', '.join(PYTHON)} (Python version) or {', '.join(BINARY)} (binary version)"
CLASSES = 100
SIDE = 32
SIZES = (8, 16, SIDE)
PIXELS = 3 * SIDE * SIDE
RECORD = 2 + PIXELS  # coarse label, fine label, then the red, green and blue planes
MEAN = (0.5071, 0.4867, 0.4408)  # of the training images: red, green, blue
STD = (0.2675, 0.2565, 0.2761)
LARGEST = 400_000_000  # bytes; the largest official file has 155 million
BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, MemoryError, zlib.error, lzma.LZMAError)

Split = tuple[Tensor, Tensor]  # images (N, 3, 32, 32) uint8, fine labels (N,) int64


def load_cifar100(path: str | Path, checksums: Mapping[str, str] | None = OFFICIAL, image_size: int = SIDE) -> Dataset:
    """CIFAR-100 with its 100 fine classes, at 32 pixels, or scaled down to 16 or 8.

    `path` is the official archive, its extracted folder, or a folder that contains one of them. Each file is compared
    with its checksum ("sha1:..." or "md5:...", by file name) before decoding; `checksums=None` skips that.
    """
    if image_size not in SIZES:
        raise ConfigError(
            f"image_size is {image_size}; for CIFAR-100 it must be {SIDE}, or 16 or 8 to scale the images down."
        )
    try:
        origin, files = _find(Path(path))
    except OSError as error:
        raise DataError(f"{error.filename or path} cannot be read: {error.strerror}; check its permissions.") from error
    for name, data in files.items():
        _verify(data, (checksums or {}).get(name), f"{origin}: {name}")
    train, test, class_names = (_decode_python if "meta" in files else _decode_binary)(files, origin)
    (train_images, train_labels), (test_images, test_labels) = train, test
    images = (_scaled(train_images, image_size), train_labels, _scaled(test_images, image_size), test_labels)
    transform = Transform(MEAN, STD, pad=image_size // 8, flip=True)
    return Dataset("cifar100", *images, class_names, (3, image_size, image_size), transform)


def _scaled(images: Tensor, size: int) -> Tensor:
    """Scale images (N, C, 32, 32) uint8 down: each pixel is the mean of the pixels it replaces."""
    if size == SIDE:
        return images
    chunks = [F.avg_pool2d(chunk.float(), SIDE // size).round().to(torch.uint8) for chunk in images.split(1000)]
    return torch.cat(chunks)


def _find(path: Path) -> tuple[Path, dict[str, bytes]]:
    """The location of one version's files, and their content by name."""
    if path.is_file():
        return path, _read_archive(path)
    if not path.is_dir():
        raise DataError(
            f"{path} does not exist or cannot be read; give the CIFAR-100 archive, or a folder that contains it."
        )
    for folder in (path, path / "cifar-100-python", path / "cifar-100-binary"):
        for version in (PYTHON, BINARY):
            if all((folder / name).is_file() for name in version):
                return folder, {name: _read_file(folder / name) for name in version}
    archives = sorted(p for p in path.iterdir() if p.name.endswith((".tar.gz", ".tgz", ".tar")) and p.is_file())
    if archives:
        archive = next((p for p in archives if p.name.startswith("cifar-100")), archives[0])
        return archive, _read_archive(archive)
    raise DataError(
        f"{path} does not contain CIFAR-100: there is no archive (.tar.gz), and neither it nor its folder "
        f"cifar-100-python or cifar-100-binary has all of {WANTED}; put the official archive there."
    )


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return _read(file, path.stat().st_size, str(path))


def _read_archive(path: Path) -> dict[str, bytes]:
    """The files of one version in a tar archive, read into memory; nothing is extracted to disk."""
    found: dict[str, bytes] = {}
    with path.open("rb") as file:
        try:
            if not tarfile.is_tarfile(file):
                raise DataError(f"{path} is not a tar archive; give the official CIFAR-100 archive or its folder.")
            with tarfile.open(fileobj=file) as archive:
                for member in archive:
                    name = PurePosixPath(member.name).name
                    content = archive.extractfile(member) if member.isreg() and name in PYTHON + BINARY else None
                    if content and name not in found:
                        found[name] = _read(content, member.size, f"{path}: {name}")
        except BROKEN as error:
            reason = str(error) or type(error).__name__
            raise DataError(f"{path} is truncated or damaged ({reason}); download the archive again.") from error
    for version in (PYTHON, BINARY):
        if all(name in found for name in version):
            return {name: found[name] for name in version}
    raise DataError(
        f"{path} is not a complete CIFAR-100 archive: expected {WANTED}, "
        f"found {', '.join(found) or 'none of them'}; download the official archive."
    )


def _read(file: IO[bytes], size: int, where: str) -> bytes:
    if size > LARGEST:
        raise DataError(f"{where} has {size:,} bytes, far more than any CIFAR-100 file; download the official one.")
    return file.read(size)


def _verify(data: bytes, checksum: str | None, where: str) -> None:
    algorithm, _, expected = (checksum or "").partition(":")
    if checksum and hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() != expected:
        raise DataError(
            f"{where} is damaged or not the official file ({algorithm} is not {expected}); download it again."
        )


def _decode_binary(files: Mapping[str, bytes], origin: Path) -> tuple[Split, Split, tuple[str, ...]]:
    def split(name: str) -> Split:
        where, size = f"{origin}: {name}", len(files[name])
        if size % RECORD:
            raise DataError(f"{where} has {size} bytes, not a multiple of the record size {RECORD}; download it again.")
        records = np.frombuffer(files[name], np.uint8).reshape(-1, RECORD)
        return _split(records[:, 2:], records[:, 1].tolist(), where)

    names = files["fine_label_names.txt"].decode("utf-8", errors="replace").split()
    return split("train.bin"), split("test.bin"), _class_names(names, f"{origin}: fine_label_names.txt")


def _decode_python(files: Mapping[str, bytes], origin: Path) -> tuple[Split, Split, tuple[str, ...]]:
    def content(name: str) -> dict[object, object]:
        loaded = load_plain(files[name], f"{origin}: {name}")
        if not isinstance(loaded, dict):
            raise DataError(
                f"{origin}: {name} contains a {type(loaded).__name__}, not a dict; download the official file."
            )
        return {_text(key): value for key, value in loaded.items()}

    def split(name: str) -> Split:
        entries = content(name)
        return _split(entries.get("data"), entries.get("fine_labels"), f"{origin}: {name}")

    names = content("meta").get("fine_label_names")
    return split("train"), split("test"), _class_names(names, f"{origin}: meta")


def _split(pixels: object, labels: object, where: str) -> Split:
    """Check the content of a file and convert it: pixels (N, 3072) uint8, labels a list of N fine labels."""
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (PIXELS,)):
        raise DataError(f"{where} has no images (data) of {PIXELS} bytes each; download the official file.")
    if not (isinstance(labels, list) and all(isinstance(label, int | np.integer) for label in labels)):
        raise DataError(f"{where} has no list of fine labels (fine_labels); download the official file.")
    for record, label in enumerate(labels):
        if not 0 <= label < CLASSES:
            raise DataError(
                f"{where}: record {record} (from 0) has a label outside 0 to {CLASSES - 1}; download it again."
            )
    images = np.array(pixels, order="C").reshape(-1, 3, 32, 32)  # a copy: the file's bytes are read-only
    return torch.from_numpy(images), torch.tensor(labels, dtype=torch.int64)


def _class_names(names: object, where: str) -> tuple[str, ...]:
    found = [_text(name) for name in names] if isinstance(names, list) else []
    if len(found) != CLASSES or not all(isinstance(name, str) for name in found):
        raise DataError(f"{where} has {len(found)} fine class names instead of {CLASSES}; download the official file.")
    return tuple(str(name) for name in found)


def _text(value: object) -> object:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
