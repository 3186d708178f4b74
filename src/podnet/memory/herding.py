"""Herding (Rebuffi et al., 2017): exemplars chosen one by one so that their mean follows the mean of the class."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from podnet.grouping import positions_by_class


def herd(features: Tensor, n: int) -> Tensor:
    """Indices of n of the features (N, D), in the order chosen: each brings the chosen mean closest to the full mean.

    >>> herd(torch.tensor([[0.0], [1.0], [5.0]]), 2).tolist()
    [1, 2]
    """
    if not 0 <= n <= len(features):
        raise ValueError(f"cannot choose {n} exemplars from {len(features)} images.")
    features = features.double()  # near ties must not depend on the summation order of float32
    mean = features.mean(0)
    chosen_sum = torch.zeros_like(mean)
    free = torch.ones(len(features), dtype=torch.bool, device=features.device)
    chosen = []
    for k in range(1, n + 1):
        distances = (mean - (chosen_sum + features) / k).square().sum(1)
        best = int(distances.masked_fill(~free, torch.inf).argmin())
        free[best] = False
        chosen_sum += features[best]
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64, device=features.device)


def herd_classes(features: Tensor, targets: Tensor, labels: Iterable[int], quota: int, reserved: int = 0) -> Tensor:
    """Indices of `quota` exemplars of each class, class by class. The first `reserved` are simply its first images."""
    positions = positions_by_class(targets)
    chosen = []
    for label in labels:
        own = positions[label]
        free = own[reserved:]
        chosen += [own[:reserved], free[herd(features[free], min(quota - reserved, len(free)))]]
    return torch.cat(chosen)
