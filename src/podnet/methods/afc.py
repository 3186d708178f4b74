"""AFC: Knowledge Distillation with Adaptive Feature Consolidation (Kang et al., CVPR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.methods.base import Batches, State
from podnet.methods.phases import Phase
from podnet.methods.podnet import PODNet
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class AFC(PODNet):
    """PODNet with another distillation: the change of each channel is weighed by the channel's importance.

    L = L_NCA + λ √(N/T) mean_lc I_lc ‖Z_lc - Z'_lc‖, over the maps l and their channels c. I_lc is the mean over the
    images of the squared gradient of the classification loss with respect to channel c of map l, computed after the
    task before and divided by its mean over the channels. Unlike the authors' code we compute it in evaluation mode and
    without augmentation.

    State: `importance.0`, `importance.1`, ..., one tensor (channels,) for each map.
    """

    lambda_d: float = 4.0  # weight of the discrepancy of the maps
    lambda_c: float = 0.0  # POD and POD-flat are left out
    lambda_f: float = 0.0

    name = "afc"
    summary = "PODNet, distilling each channel of the maps by its importance (Kang et al., 2022)"
    year = 2022
    verified = "the authors' released code: the discrepancy to 1e-6; the importance against gradients of single images"
    later = PODNet.later | {"lambda_d"}
    presets = {
        "imagenet": {
            "lambda_d": 10.0,
            "epochs": 90,
            "weight_decay": 1e-4,
            "finetune_lr": 0.02,
            "backbone": "resnet18",
        },
        **{data: PODNet.presets[data] for data in ("digits", "digits released", "paper", "imagenet paper")},
    }

    differentiates_maps = True

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        """PODNet's phases. In steps the main one has one more term."""
        train, *rest = super().phases(old, new, state)
        if not old:
            return [train]
        weight = self.lambda_d * sqrt((old + new) / new)
        importance = [state[f"importance.{number}"] for number in range(len(state))]

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            assert teacher is not None
            change = discrepancy(teacher.maps, student.maps, importance)
            return train.loss(student, teacher, targets) | {"discrepancy": weight * change}

        return [replace(train, loss=loss, distils=True), *rest]

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        """The importance of each channel for the images of the task and the exemplars."""
        totals: list[Tensor] = []
        for inputs, targets in batches.with_exemplars():
            outputs = network(inputs)
            (loss,) = self.classify(outputs, targets).values()
            gradients = torch.autograd.grad(loss * len(targets), outputs.maps)  # each (B, C, H, W)
            found = [gradient.square().sum((0, 2, 3)) for gradient in gradients]
            totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
        return {f"importance.{number}": normalised(total) for number, total in enumerate(totals)}


def normalised(importance: Tensor) -> Tensor:
    """Divided by the mean over the channels; equal weights if no image has a loss."""
    return importance / importance.mean() if importance.any() else torch.ones_like(importance)


def discrepancy(old_maps: Sequence[Tensor], new_maps: Sequence[Tensor], importance: Sequence[Tensor]) -> Tensor:
    """The distance of the squared and normalised channels of maps (B, C, H, W), weighed by `importance`, each (C,)."""
    total = new_maps[0].new_zeros(())
    for old, new, weights in zip(old_maps, new_maps, importance, strict=True):
        a, b = (F.normalize(maps.square().flatten(2), dim=2) for maps in (old, new))  # (B, C, H * W)
        total = total + (weights * (a - b).norm(dim=2)).mean()
    return total / len(new_maps)
