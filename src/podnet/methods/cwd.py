"""CwD: Mimicking the Oracle, an Initial Phase Decorrelation Approach (Shi et al., CVPR 2022), on PODNet."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from podnet.methods.base import State
from podnet.methods.phases import Phase
from podnet.methods.podnet import PODNet
from podnet.nets.network import Outputs


@dataclass(frozen=True, kw_only=True)
class CwD(PODNet):
    """PODNet with one more term while no class is old, which is the first task: η / (C d²) Σ_c ‖K_c‖_F².

    K_c is the correlation matrix (d, d) of the normalised embeddings of class c. Decorrelated features of the first
    classes are more like those of a network that knows all classes, and leave room for the later ones. A batch
    estimates K_c by its images, if it has at least two of the class; with several processes, each by its own share. The
    authors' code gives a class of n images (n - 1)² times the weight. They released no options for PODNet. η is ours,
    chosen on held-out images at scale small: with their 0.5 for UCIR the NCA loss, whose gradient is small at first,
    does not fall there.
    """

    decorrelation: float = 0.05  # η

    name = "cwd"
    summary = "PODNet, with decorrelated features of the first classes (Shi et al., 2022)"
    year = 2022
    verified = "loops written from the paper's equation; the weight is ours"

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        """PODNet's phases. In the first task there is one more term."""
        train, *rest = super().phases(old, new, state)
        if old or not self.decorrelation:
            return [train, *rest]

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            narrow = correlation(student.embedding, targets)
            return train.loss(student, teacher, targets) | {"cwd": self.decorrelation * narrow}

        return [replace(train, loss=loss)]


TINY = 1e-8  # variance of a feature that is the same in all images of a class


def correlation(embedding: Tensor, targets: Tensor) -> Tensor:
    """The mean over the classes of ‖K‖_F² / d², from embeddings (B, d): between 1 / d and 1. 0 without two of a class.

    With Z (n, d) the standardised features of a class, K = Zᵀ Z / (n - 1), and ‖Zᵀ Z‖ = ‖Z Zᵀ‖. So the square is a sum
    over the pairs of images of the class, and all classes are computed at once.
    """
    unit = F.normalize(embedding)
    same = (targets[:, None] == targets).to(unit)  # (B, B)
    counts = same.sum(1, keepdim=True)  # (B, 1): images of the same class
    others = (counts - 1).clamp(min=1)
    centred = unit - same @ unit / counts
    deviation = (same @ centred.square() / others + TINY).sqrt()
    standard = centred / deviation  # Z: (B, d), zero for the only image of a class
    pairs = (standard @ standard.t()).square() * same  # (B, B)
    classes = ((counts > 1) / counts).sum()
    return (pairs / others.square()).sum() / (classes.clamp(min=1) * unit.shape[1] ** 2)
