"""Images are either pixels in memory, a uint8 (N, C, H, W) tensor, or photos that are decoded when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from podnet.data.photos import Photos
from podnet.data.sources import Shelf
from podnet.errors import DataError

Images = Tensor | Photos


def feed(
    images: Images,
    parts: Sequence[Tensor],
    draws: torch.Generator | None = None,
    rows: Callable[[int], Tensor] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(indices, uint8 images) for each part. With `draws` photos are cropped at random; unreadable ones are missing.

    `rows` tells which of a part of so many images are wanted; the crops are those they have in the whole part.
    """
    if isinstance(images, Photos):
        return images.batches(parts, draws, rows)
    own = parts if rows is None else [part[rows(len(part))] for part in parts]
    return ((part, images[part]) for part in own)


def to_device(pixels: Tensor, device: torch.device) -> Tensor:
    """The pixels there; to a GPU from page-locked memory, so that the copy goes on beside the computation."""
    pinned = pixels.pin_memory() if device.type == "cuda" and not pixels.is_cuda else pixels
    return pinned.to(device, non_blocking=True)


def require_every_class(targets: Tensor, readable: Tensor, names: Sequence[str]) -> None:
    """Refuse to go on when skipping unreadable photos leaves nothing of a class."""
    if lost := sorted(set(targets.tolist()) - set(targets[readable].tolist())):
        raise DataError(f"no photo of class {names[lost[0]]!r} could be read; mend them, or leave the class out.")


def join(first: Images, second: Images) -> Images:
    """Both, one after the other."""
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
    """The same, independent of the user's files: in memory, or on the shelf where there is no room beside others.

    `write` is given what writes the file of that name: of several processes one does it.
    """
    if shelf is None or not isinstance(images, Photos):
        return self_contained(images)
    return images.shelved(shelf, name, beside.held() if isinstance(beside, Photos) else 0, write)


def fingerprint(images: Images, targets: Tensor) -> str:
    """A digest of images and their labels: equal where both are, on whichever machine."""
    digest = hashlib.sha256(targets.numpy().tobytes())
    for content in images.contents() if isinstance(images, Photos) else [images.numpy().tobytes()]:
        digest.update(content)
    return digest.hexdigest()


def to_tensors(images: Images) -> dict[str, Tensor]:
    """Self-contained images as named tensors, to be saved."""
    return images.state() if isinstance(images, Photos) else {"images": images}


def from_tensors(tensors: Mapping[str, Tensor], shelf: Shelf | None = None) -> Images | None:
    """The images that `to_tensors` took apart; None where there were none."""
    if "images" in tensors:
        return tensors["images"]
    return Photos.from_state(tensors, shelf=shelf) if "bytes" in tensors else None
