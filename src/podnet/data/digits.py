"""The embedded default: scikit-learn's 1,797 handwritten digits of 8x8 pixels, so everything runs offline."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from podnet.data.augment import Transform
from podnet.data.dataset import Dataset
from podnet.grouping import positions_by_class

TEST_EVERY = 5  # of each class, every fifth image is a test image


def load_digits() -> Dataset:
    """About 144 training and 36 test images of each of ten digits; greyscale (one channel), never mirrored."""
    pixels, labels = _published()
    images = torch.from_numpy(pixels * (255 / 16)).round().to(torch.uint8)[:, None]
    targets = torch.from_numpy(labels).long()
    test = torch.zeros(len(targets), dtype=torch.bool)
    for own in positions_by_class(targets).values():
        test[own[::TEST_EVERY]] = True
    splits = (images[~test], targets[~test], images[test], targets[test])
    transform = Transform(mean=(0.3053,), std=(0.3760,), pad=1, flip=False)
    return Dataset("digits", *splits, tuple("0123456789"), (1, 8, 8), transform)


@cache
def _published() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of scikit-learn, whose file takes longer to parse than a task of digits to learn."""
    from sklearn.datasets import load_digits as sklearn_digits

    data = sklearn_digits()
    return data.images, data.target
