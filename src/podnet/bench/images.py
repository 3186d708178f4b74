"""Augmentation and decoding in batches and processes, compared with one image after the other in Pillow."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from podnet.bench import plain
from podnet.bench.measure import Figure, Work, figure, in_turns, ratio
from podnet.bench.scene import TRANSFORM, noise
from podnet.data.photos import Photos
from podnet.processes import cores, keep_freed_memory

SIZE = 224


def augmentation(quick: bool) -> dict[str, Figure]:
    """Batches of 128 CIFAR images: crop, mirror image, intensity, normalisation."""
    keep_freed_memory()  # as `podnet run` does
    images = noise(512)
    pictures = [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).numpy()]
    ours, theirs = torch.Generator().manual_seed(0), np.random.default_rng(0)
    works: dict[str, Work] = {
        "ours": lambda: [TRANSFORM.augment(batch, ours) for batch in images.split(128)],
        "pillow": lambda: torch.stack([plain.augment(picture, TRANSFORM.pad, theirs) for picture in pictures]),
    }
    taken = in_turns(works, 5 if quick else 20)
    return {"augmentation_vs_pillow": ratio(taken["pillow"], taken["ours"], "crop, mirror, intensity, normalisation")}


def decoding(quick: bool) -> dict[str, Figure]:
    """Random crops of real photos: of ImageNet's usual size in one and more processes, and of a phone's size."""
    count = cores()
    rounds = 2 if quick else 9
    with tempfile.TemporaryDirectory() as folder:
        photos = _photos(Path(folder), (500, 375), 64 if quick else 256)
        large = _photos(Path(folder), (2000, 1500), 8 if quick else 32)
        taken = in_turns(
            {"ours": _ours(photos), "pillow": _pillow(photos), "one": _ours(photos, 1), "all": _ours(photos, count)},
            rounds,
        )
        taken |= in_turns({"ours large": _ours(large), "pillow large": _pillow(large)}, rounds)
    rate = [len(photos) / took for took in taken["ours"]]
    return {
        "decoding_vs_pillow": ratio(taken["pillow"], taken["ours"], "random crops of 500 x 375 photos, one process"),
        "decoding_large_vs_pillow": ratio(
            taken["pillow large"], taken["ours large"], "random crops of 2000 x 1500 photos, one process"
        ),
        "decoding_all_cores_vs_one": ratio(taken["one"], taken["all"], f"{count} decoding processes compared with one"),
        "decoding_photos_per_second": figure(rate, "photos/s", "500 x 375, one process"),
    }


def _photos(folder: Path, shape: tuple[int, int], count: int) -> list[Path]:
    """Copies of two photos that come with scikit-learn."""
    from sklearn.datasets import load_sample_images

    pictures = [Image.fromarray(pixels).resize(shape) for pixels in load_sample_images().images]
    paths = [folder / f"{shape[0]}-{i}.jpg" for i in range(count)]
    for path, picture in zip(paths, itertools.cycle(pictures), strict=False):
        picture.save(path, quality=90)
    return paths


def _ours(paths: Sequence[Path], workers: int = 0) -> Work:
    photos, parts = Photos(tuple(paths), SIZE, workers), torch.arange(len(paths)).split(16)
    return lambda: list(photos.batches(parts, torch.Generator().manual_seed(0)))


def _pillow(paths: Sequence[Path]) -> Work:
    return lambda: [plain.random_crop(path, SIZE, np.random.default_rng(i)) for i, path in enumerate(paths)]
