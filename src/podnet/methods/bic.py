"""BiC: Large Scale Incremental Learning (Wu et al., CVPR 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.errors import ConfigError
from podnet.losses import distillation
from podnet.memory.exemplars import first_of_each_class
from podnet.methods.base import DIGITS, Features, Method, State
from podnet.methods.phases import Phase, Pool, cross_entropy, stepwise
from podnet.nets.classifiers import BiasCorrectedClassifier
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class BiC(Method):
    """Softmax distillation, then a bias correction α o + β of the new outputs, learned on held-out images."""

    epochs: int = 250
    milestones: tuple[float, ...] = (0.4, 0.6, 0.8)  # a tenth of the learning rate after these shares of the epochs
    weight_decay: float = 2e-4
    temperature: float = 2.0
    held_out: float = 0.1  # share of the exemplars used only for the bias correction
    bias_epochs: int = 200
    bias_lr: float = 0.05
    bias_penalty: float = 0.05  # multiplies β² in the loss of the correction; the authors' 0.1 multiplies half of it

    name = "bic"
    summary = "Softmax distillation and bias correction of the new classes' outputs (Wu et al., 2019)"
    idea = "distillation"
    year = 2019
    verified = "loops written from the paper's equations; the authors' hyper-parameters"
    inferences = ("cnn",)
    no_inference = "no NME: BiC corrects the classifier's outputs, which the nearest mean does not use."
    positive = Method.positive | {"temperature"}
    later = frozenset({"temperature", "bias_epochs", "bias_lr", "bias_penalty"})
    presets = {
        "imagenet": {
            "epochs": 100,
            "milestones": (0.3, 0.6, 0.8, 0.9),
            "weight_decay": 1e-4,
            "batch_size": 256,
            "bias_lr": 0.1,
            "backbone": "resnet18",
        },
        "digits": {**DIGITS, "bias_epochs": 50},
    }

    def classifier(self, dim: int) -> BiasCorrectedClassifier:
        return BiasCorrectedClassifier(dim)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}; it must be a share above 0 and below 1.")

    def reserved(self, quota: int) -> int:
        count = max(1, round(self.held_out * quota))
        if count >= quota:
            raise ConfigError(
                f"BiC would hold out {count} of {quota} exemplars per class for its bias correction and train on none; "
                "use a larger memory, at least 2 per class, or a smaller held_out."
            )
        return count

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        """Train with uncorrected outputs. Only the teacher, copied earlier, keeps the last correction."""
        assert isinstance(network.classifier, BiasCorrectedClassifier)
        network.classifier.forget_corrections()
        network.classifier.add_classes(new)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        share = old / (old + new)  # λ in the paper

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            if teacher is None:
                return cross_entropy(student, teacher, targets)
            kept = distillation(student.logits, teacher.logits, self.temperature)
            return {"ce": (1 - share) * F.cross_entropy(student.logits, targets), "distillation": share * kept}

        def validation(pool: Pool) -> Tensor:
            return first_of_each_class(pool.targets, self.reserved(pool.quota))

        def training(pool: Pool) -> Tensor:
            mask = torch.ones(len(pool.targets), dtype=torch.bool)
            mask[validation(pool)] = False
            return mask.nonzero().flatten()

        lr = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        train = Phase("train", loss, self.epochs, lr, images=training, parameters=without_corrections, distils=old > 0)
        bias = Phase(
            "bias",
            cross_entropy,
            self.bias_epochs,
            stepwise(self.bias_lr, self.bias_epochs, (0.3, 0.6, 0.8, 0.9), 0.1),
            images=validation,
            parameters=newest_correction,
            augment=False,
            update_statistics=False,
            weight_decay=0.0,
            penalty=self.beta,
        )
        return [train, bias] if old and self.bias_epochs else [train]

    def beta(self, network: Network, student: Outputs, targets: Tensor) -> dict[str, Tensor]:
        return {"beta": self.bias_penalty * newest_correction(network)[0][1].square()}


def without_corrections(network: Network) -> list[nn.Parameter]:
    return [*network.backbone.parameters(), *network.classifier.weights]


def newest_correction(network: Network) -> list[nn.Parameter]:
    assert isinstance(network.classifier, BiasCorrectedClassifier)
    return [network.classifier.corrections[-1]]
