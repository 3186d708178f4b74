"""BiC: Large Scale Incremental Learning (Wu et al., CVPR 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from podnet.classifiers import BiasCorrectedClassifier
from podnet.losses import distillation
from podnet.methods.base import DIGITS, Method, Phase, Pool, constant, stepwise
from podnet.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class BiC(Method):
    """Softmax distillation, then a bias correction α o + β of the new outputs, learned on held-out images."""

    epochs: int = 250
    milestones: tuple[float, ...] = (0.4, 0.6, 0.8)  # a tenth of the rate after these shares of the epochs
    weight_decay: float = 2e-4
    temperature: float = 2.0
    held_out: float = 0.1  # share of the exemplars that only the bias correction sees
    bias_epochs: int = 200
    bias_lr: float = 0.01

    name = "bic"
    summary = "Softmax distillation and bias correction of the new classes' outputs (Wu et al., 2019)"
    inferences = ("cnn",)
    no_inference = "no NME: BiC corrects the classifier's outputs, which the nearest mean does not use."
    presets = {
        "imagenet": {
            "epochs": 100,
            "milestones": (0.3, 0.6, 0.8, 0.9),
            "weight_decay": 1e-4,
            "batch_size": 256,
            "backbone": "resnet18",
        },
        "digits": {**DIGITS, "bias_epochs": 50},
    }

    def classifier(self, dim: int) -> BiasCorrectedClassifier:
        return BiasCorrectedClassifier(dim)

    def phases(self, old: int, new: int) -> list[Phase]:
        share = old / (old + new)  # λ of the paper

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            if teacher is None:
                return {"ce": F.cross_entropy(student.logits, targets)}
            kept = distillation(student.logits, teacher.logits, self.temperature)
            return {"ce": (1 - share) * F.cross_entropy(student.logits, targets), "distillation": share * kept}

        def validation(pool: Pool) -> Tensor:
            return pool.last_of_each_class(max(1, round(self.held_out * pool.quota)))

        rate = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        if not old:
            return [Phase("train", loss, self.epochs, rate, parameters=without_corrections)]
        return [
            Phase(
                "train",
                loss,
                self.epochs,
                rate,
                images=lambda pool: (~validation(pool)).nonzero().flatten(),
                parameters=without_corrections,
                distils=True,
            ),
            Phase(
                "bias",
                lambda student, teacher, targets: {"ce": F.cross_entropy(student.logits, targets)},
                self.bias_epochs,
                constant(self.bias_lr),
                images=lambda pool: validation(pool).nonzero().flatten(),
                parameters=newest_correction,
                augment=False,
                update_statistics=False,
                weight_decay=0.0,
            ),
        ]


def without_corrections(network: Network) -> list[nn.Parameter]:
    return [*network.backbone.parameters(), *network.classifier.weights]


def newest_correction(network: Network) -> list[nn.Parameter]:
    assert isinstance(network.classifier, BiasCorrectedClassifier)
    return [network.classifier.corrections[-1]]
