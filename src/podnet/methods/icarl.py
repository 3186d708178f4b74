"""iCaRL: Incremental Classifier and Representation Learning (Rebuffi et al., CVPR 2017)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from podnet.losses import icarl
from podnet.methods.base import DIGITS, Method, Phase, stepwise
from podnet.network import Outputs


@dataclass(frozen=True, kw_only=True)
class ICaRL(Method):
    """Sigmoid outputs, the old ones distilled from the teacher; made for NME, its CNN is the paper's hybrid 1."""

    epochs: int = 70
    lr: float = 2.0
    milestones: tuple[float, ...] = (0.7, 0.9)  # a fifth of the rate after these shares of the epochs
    weight_decay: float = 1e-5
    total_classes: int | None = None  # the paper's loss, and so its lr, is a mean over outputs for all of the run's

    name = "icarl"
    summary = "Binary cross-entropy with distilled old outputs, nearest mean of exemplars (Rebuffi et al., 2017)"
    presets = {
        "imagenet": {"epochs": 60, "milestones": (1 / 3, 1 / 2, 2 / 3, 5 / 6), "backbone": "resnet18"},
        "digits": DIGITS,
    }

    def of_run(self, classes: int) -> ICaRL:
        return replace(self, total_classes=self.total_classes or classes)

    def phases(self, old: int, new: int) -> list[Phase]:
        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            bce = icarl(student.logits, targets, None if teacher is None else teacher.logits)
            return {"bce": bce * (old + new) / (self.total_classes or old + new)}

        rate = stepwise(self.lr, self.epochs, self.milestones, 0.2)
        return [Phase("train", loss, self.epochs, rate, distils=old > 0)]
