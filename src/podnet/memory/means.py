"""Nearest mean of exemplars (Rebuffi et al., 2017): the class whose mean feature is nearest."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.grouping import positions_by_class


def class_means(features: Tensor, targets: Tensor, mirrored: Tensor | None = None) -> Tensor:
    """Unit means (classes, D) of the normalised features of each class, including those of mirror images if given."""
    parts = [F.normalize(part) for part in (features, mirrored) if part is not None]
    means = [torch.cat([part[own] for part in parts]).mean(0) for own in positions_by_class(targets).values()]
    return F.normalize(torch.stack(means))


def nme_scores(features: Tensor, means: Tensor) -> Tensor:
    """Minus the squared distance (N, classes) of normalised features to the class means; the highest is the nearest."""
    return -torch.cdist(F.normalize(features), means, compute_mode="donot_use_mm_for_euclid_dist").square()
