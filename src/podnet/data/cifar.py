"""CIFAR-10 and CIFAR-100 from their official files: the Python or the binary version, as archive or extracted."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.cifar_kinds import CIFAR10, CIFAR100, Kind, Version
from podnet.data.dataset import Dataset, reading
from podnet.data.unpickle import load_plain
from podnet.errors import ConfigError, DataError

SIDE = 32
SIZES = (8, 16, SIDE)
PIXELS = 3 * SIDE * SIDE  # the red, green and blue planes
LARGEST = 400_000_000  # bytes; the largest official file has 155 million
BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, MemoryError, zlib.error, lzma.LZMAError)


def load_cifar10(
    path: str | Path, checksums: Mapping[str, str] | None = CIFAR10.checksums, image_size: int = SIDE
) -> Dataset:
    """CIFAR-10; everything as for CIFAR-100."""
    return _load(CIFAR10, Path(path), checksums, image_size)


def load_cifar100(
    path: str | Path, checksums: Mapping[str, str] | None = CIFAR100.checksums, image_size: int = SIDE
) -> Dataset:
    """CIFAR-100 with its 100 fine classes, at 32 pixels, or scaled down to 16 or 8.

    `path` is the official archive, its extracted folder, or a folder that contains one of them. Each file is compared
    with its checksum ("sha1:..." or "md5:...", by file name) before decoding; `checksums=None` skips that.
    """
    return _load(CIFAR100, Path(path), checksums, image_size)


def _load(kind: Kind, path: Path, checksums: Mapping[str, str] | None, image_size: int) -> Dataset:
    if image_size not in SIZES:
        raise ConfigError(
            f"image_size is {image_size}; for {kind.title} it must be {SIDE}, or 16 or 8 to scale the images down."
        )
    with reading(path):
        origin, files = _find(kind, path)
    for name, data in files.items():
        algorithm, _, expected = (checksums or {}).get(name, "").partition(":")
        if algorithm and hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() != expected:
            what = f"damaged or not the official file ({algorithm} is not {expected})"
            raise DataError(f"{origin}: {name} is {what}; download it again.")
    version = kind.python if kind.python.names in files else kind.binary
    class_names = _class_names(kind, version, files[version.names], f"{origin}: {version.names}")

    def split(names: Iterable[str]) -> tuple[Tensor, Tensor]:
        batches = [_batch(kind, version, files[name], f"{origin}: {name}") for name in names]
        pixels = np.ascontiguousarray(np.concatenate([pixels for pixels, _ in batches]))  # a pickle may have columns
        labels = [label for _, labels in batches for label in labels]
        images = torch.from_numpy(pixels).view(-1, 3, SIDE, SIDE)
        return _scaled(images, image_size), torch.tensor(labels, dtype=torch.int64)

    transform = Transform(kind.mean, kind.std, pad=image_size // 8, flip=True)
    shape = (3, image_size, image_size)
    return Dataset(kind.name, *split(version.train), *split([version.test]), class_names, shape, transform)


def _scaled(images: Tensor, size: int) -> Tensor:
    """Scale images (N, C, 32, 32) uint8 down: each pixel is the mean of the pixels it replaces."""
    if size == SIDE:
        return images
    chunks = [F.avg_pool2d(chunk.float(), SIDE // size).round().to(torch.uint8) for chunk in images.split(1000)]
    return torch.cat(chunks)


def _find(kind: Kind, path: Path) -> tuple[Path, dict[str, bytes]]:
    """The location of one version's files, and their content by name."""
    if path.is_file():
        return path, _read_archive(kind, path)
    if not path.is_dir():
        raise DataError(
            f"{path} does not exist or cannot be read; give the {kind.title} archive, or a folder that contains it."
        )
    for folder in (path, path / kind.python.folder, path / kind.binary.folder):
        for version in (kind.python, kind.binary):
            if all((folder / name).is_file() for name in version.files):
                return folder, {name: _read_file(kind, folder / name) for name in version.files}
    archives = sorted(p for p in path.iterdir() if p.name.endswith((".tar.gz", ".tgz", ".tar")) and p.is_file())
    if archives:
        archive = next((p for p in archives if p.name.startswith(kind.archive)), archives[0])
        return archive, _read_archive(kind, archive)
    raise DataError(
        f"{path} does not contain {kind.title}: there is no archive (.tar.gz), and neither it nor its folder "
        f"{kind.python.folder} or {kind.binary.folder} has all of {kind.wanted}; put the official archive there."
    )


def _read_file(kind: Kind, path: Path) -> bytes:
    with path.open("rb") as file:
        return _read(kind, file, path.stat().st_size, str(path))


def _read_archive(kind: Kind, path: Path) -> dict[str, bytes]:
    """The files of one version in a tar archive, read into memory; nothing is extracted to disk."""
    found: dict[str, bytes] = {}
    with path.open("rb") as file:
        try:
            if not tarfile.is_tarfile(file):
                raise DataError(f"{path} is not a tar archive; give the official {kind.title} archive or its folder.")
            with tarfile.open(fileobj=file) as archive:
                for member in archive:
                    name = PurePosixPath(member.name).name
                    ours = member.isreg() and name in kind.python.files + kind.binary.files
                    content = archive.extractfile(member) if ours else None
                    if content and name not in found:
                        found[name] = _read(kind, content, member.size, f"{path}: {name}")
        except DataError:
            raise
        except BROKEN as error:
            reason = str(error) or type(error).__name__
            raise DataError(f"{path} is truncated or damaged ({reason}); download the archive again.") from error
    for version in (kind.python, kind.binary):
        if all(name in found for name in version.files):
            return {name: found[name] for name in version.files}
    raise DataError(
        f"{path} is not a complete {kind.title} archive: expected {kind.wanted}, "
        f"found {', '.join(found) or 'none of them'}; download the official archive."
    )


def _read(kind: Kind, file: IO[bytes], size: int, where: str) -> bytes:
    if size > LARGEST:
        raise DataError(f"{where} has {size:,} bytes, far more than any {kind.title} file; download the official one.")
    return file.read(size)


def _batch(kind: Kind, version: Version, data: bytes, where: str) -> tuple[np.ndarray, list[int]]:
    """The pixels (N, 3072) uint8 and the N labels in a file, checked."""
    pixels: object
    labels: object
    if version is kind.python:
        entries = _unpickled(data, where)
        pixels, labels = entries.get("data"), entries.get(kind.labels)
    else:
        size, record = len(data), kind.label_bytes + PIXELS
        if size % record:
            raise DataError(f"{where} has {size} bytes, not a multiple of the record size {record}; download it again.")
        records = np.frombuffer(data, np.uint8).reshape(-1, record)
        pixels, labels = records[:, kind.label_bytes :], records[:, kind.label_bytes - 1].tolist()
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (PIXELS,)):
        raise DataError(f"{where} has no images (data) of {PIXELS} bytes each; download the official file.")
    if not (isinstance(labels, list) and all(isinstance(label, int | np.integer) for label in labels)):
        raise DataError(f"{where} has no list of {kind.adjective}labels ({kind.labels}); download the official file.")
    if len(pixels) != len(labels):
        raise DataError(f"{where} has {len(pixels)} images but {len(labels)} labels; download the official file.")
    for record, label in enumerate(labels):
        if not 0 <= label < kind.classes:
            last = kind.classes - 1
            raise DataError(f"{where}: record {record} (from 0) has a label outside 0 to {last}; download it again.")
    return pixels, labels


def _class_names(kind: Kind, version: Version, data: bytes, where: str) -> tuple[str, ...]:
    if version is kind.python:
        names = _unpickled(data, where).get(kind.label_names)
    else:
        names = data.decode("utf-8", errors="replace").split()
    found = [_text(name) for name in names] if isinstance(names, list) else []
    if len(found) != kind.classes or not all(isinstance(name, str) for name in found):
        what = f"{kind.adjective}class names instead of {kind.classes}"
        raise DataError(f"{where} has {len(found)} {what}; download the official file.")
    return tuple(map(str, found))


def _unpickled(data: bytes, where: str) -> dict[object, object]:
    loaded = load_plain(data, where)
    if not isinstance(loaded, dict):
        raise DataError(f"{where} contains a {type(loaded).__name__}, not a dict; download the official file.")
    return {_text(key): value for key, value in loaded.items()}


def _text(value: object) -> object:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
