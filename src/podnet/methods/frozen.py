"""What the closed forms share: a network that is trained in the first task, or pretrained, and then stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from podnet.fidelity import Fidelity
from podnet.methods.base import Exemplars, Method, State
from podnet.methods.phases import Phase, stepwise
from podnet.nets.network import Outputs


@dataclass(frozen=True, kw_only=True)
class Frozen(Method):
    """Cross-entropy in the first task, unless the network is pretrained and frozen; no training in later tasks.

    The schedule is the usual one of the first task (Hou et al., 2019; Zhuang et al., 2022).
    """

    fidelity: Fidelity = "paper"  # "released": the form of ResNet that PODNet trains, for weights of its runs
    milestones: tuple[float, ...] = (0.5, 0.75)  # a tenth of the learning rate after these shares of the epochs

    idea = "closed form"
    exemplars: ClassVar[Exemplars] = "none"
    wants_features = True
    fixed = True

    @property
    def backbone_fidelity(self) -> Fidelity:
        return self.fidelity

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            return {"ce": F.cross_entropy(student.logits, targets)}

        if old or state or self.freeze:  # with --visits no class need be old
            return []
        lr = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        return [Phase("train", loss, self.epochs, lr, soft_targets=True)]


IMAGENET = {"epochs": 90, "milestones": (1 / 3, 2 / 3), "weight_decay": 1e-4, "backbone": "resnet18"}
