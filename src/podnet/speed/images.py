"""Augmentation and decoding, a batch at a time and in processes, against one image after the other in Pillow."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from podnet.data.photos import Photos
from podnet.speed import plain
from podnet.speed.measure import Figure, Work, figure, in_turns, ratio
from podnet.speed.scene import TRANSFORM, noise

SIZE = 224
PHOTO = (500, 375)  # the usual size of a photo in ImageNet


def augmentation(quick: bool) -> dict[str, Figure]:
    """Batches of 128 CIFAR images: crop, mirror image, intensity, normalisation."""
    images = noise(512)
    pictures = [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).numpy()]
    ours, theirs = torch.Generator().manual_seed(0), np.random.default_rng(0)
    works: dict[str, Work] = {
        "ours": lambda: [TRANSFORM.augment(batch, ours) for batch in images.split(128)],
        "pillow": lambda: torch.stack([plain.augment(picture, TRANSFORM.pad, theirs) for picture in pictures]),
    }
    taken = in_turns(works, 5 if quick else 20)
    return {
        "augmentation_vs_pillow": ratio(taken["pillow"], taken["ours"], "crop, mirror image, intensity, normalised")
    }


def decoding(quick: bool) -> dict[str, Figure]:
    """Random crops of real photos at ImageNet's size: at a reduced JPEG scale, and with more processes."""
    from sklearn.datasets import load_sample_images

    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i in range(64 if quick else 256):
            photo = Image.fromarray(load_sample_images().images[i % 2]).resize(PHOTO)
            paths.append(Path(folder, f"{i}.jpg"))
            photo.save(paths[-1], quality=90)
        photos = Photos(tuple(paths), SIZE)
        parts = torch.arange(len(photos)).split(16)
        draws, plainly = torch.Generator(), np.random.default_rng(0)

        def ours(workers: int) -> Work:
            return lambda: list(replace(photos, workers=workers).batches(parts, draws.manual_seed(0)))

        works: dict[str, Work] = {
            "ours": ours(0),
            "pillow": lambda: [plain.random_crop(path, SIZE, plainly) for path in paths],
            "one": ours(1),
            "all": ours(cores),
        }
        taken = in_turns(works, 3 if quick else 9)
    rate = [len(photos) / took for took in taken["ours"]]
    return {
        "decoding_vs_pillow": ratio(taken["pillow"], taken["ours"], "random crops of photos, in one process"),
        "decoding_all_cores_vs_one": ratio(taken["one"], taken["all"], f"{cores} decoding processes against one"),
        "decoding_photos_per_second": figure(rate, "photos/s", "in one process"),
    }
