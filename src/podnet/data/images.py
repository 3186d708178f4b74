"""Images are either pixels in memory, a uint8 (N, C, H, W) tensor, or photos that are decoded on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from podnet.data.photos import Photos
from podnet.data.sources import Shelf, content_lengths
from podnet.errors import DataError

Images = Tensor | Photos


def feed(
    images: Images,
    parts: Sequence[Tensor],
    draws: torch.Generator | None = None,
    rows: Callable[[int], Tensor] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(indices, uint8 images) for each part. With `draws` photos are cropped at random; unreadable ones are missing.

    `rows` maps the size of a part to the wanted rows; they get the same crops as in the whole part.
    """
    if isinstance(images, Photos):
        return images.batches(parts, draws, rows)
    own = parts if rows is None else [part[rows(len(part))] for part in parts]
    return ((part, images[part]) for part in own)


def to_device(pixels: Tensor, device: torch.device) -> Tensor:
    """Copy pixels to the device; to a GPU from pinned memory, so that the copy overlaps with computation."""
    pinned = pixels.pin_memory() if device.type == "cuda" and not pixels.is_cuda else pixels
    return pinned.to(device, non_blocking=True)


def require_every_class(targets: Tensor, readable: Tensor, names: Sequence[str]) -> None:
    """Fail if skipping unreadable photos leaves a class without images."""
    if lost := sorted(set(targets.tolist()) - set(targets[readable].tolist())):
        raise DataError(f"no photo of class {names[lost[0]]!r} could be read; fix the photos or leave the class out.")


def shape_of(images: Images) -> tuple[int, int, int]:
    """Channels, height and width of each image."""
    if isinstance(images, Photos):
        return 3, images.size, images.size
    _, channels, height, width = images.shape
    return channels, height, width


def stored_bytes(images: Images) -> int:
    """Bytes of self-contained images as they are stored: pixels, or encoded photos."""
    return sum(content_lengths(images.sources)) if isinstance(images, Photos) else images.nbytes


def join(first: Images, second: Images) -> Images:
    if isinstance(first, Photos) and isinstance(second, Photos):
        return first.followed_by(second)
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    return torch.cat([first, second])


def self_contained(images: Images) -> Images:
    """The same images, independent of any file."""
    return images.kept() if isinstance(images, Photos) else images


def shelved(
    images: Images, shelf: Shelf | None, name: str, beside: Images | None, write: Callable[[Callable[[], None]], None]
) -> Images:
    """The same images, independent of the user's files: in memory, or on the shelf if memory has no room.

    `write` gets the function that writes the file, so that only one of several processes does it.
    """
    if shelf is None or not isinstance(images, Photos):
        return self_contained(images)
    return images.shelved(shelf, name, beside.held() if isinstance(beside, Photos) else 0, write)


def fingerprint(images: Images, targets: Tensor) -> str:
    """A digest of images and their labels, the same on every machine."""
    digest = hashlib.sha256(targets.numpy().tobytes())
    for content in images.contents() if isinstance(images, Photos) else [images.numpy().tobytes()]:
        digest.update(content)
    return digest.hexdigest()


def to_tensors(images: Images) -> dict[str, Tensor]:
    """Self-contained images as named tensors, for saving."""
    return images.state() if isinstance(images, Photos) else {"images": images}


def from_tensors(tensors: Mapping[str, Tensor], shelf: Shelf | None = None) -> Images | None:
    """The images saved by `to_tensors`; None if there were none."""
    if "images" in tensors:
        return tensors["images"]
    return Photos.from_state(tensors, shelf) if "bytes" in tensors else None
