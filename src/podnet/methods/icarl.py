"""iCaRL: Incremental Classifier and Representation Learning (Rebuffi et al., CVPR 2017)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from podnet.fidelity import Fidelity
from podnet.losses import icarl
from podnet.methods.base import DIGITS, Method, State
from podnet.methods.phases import Phase, stepwise
from podnet.nets.network import Outputs


@dataclass(frozen=True, kw_only=True)
class ICaRL(Method):
    """Sigmoid outputs, distilled from the teacher for old classes. Made for NME; its CNN is the paper's hybrid 1.

    The variant "podnet" is what the authors of PODNet ran: the loss is a mean over the classes seen, the classifier
    gets features after ReLU, and learning rates differ.
    """

    epochs: int = 70
    lr: float = 2.0
    milestones: tuple[float, ...] = (0.7, 0.9)  # a fifth of the learning rate after these shares of the epochs
    weight_decay: float = 2e-5  # the gradient of Theano's 1e-5 Σ W²; on ImageNet TensorFlow's ½ Σ W² has 1e-5
    total_classes: int | None = None  # the paper's loss, and so its lr, is a mean over the outputs of all classes
    variant: Literal["icarl", "podnet"] = "icarl"

    name = "icarl"
    summary = "Binary cross-entropy with distilled old outputs, nearest mean of exemplars (Rebuffi et al., 2017)"
    idea = "distillation"
    year = 2017
    verified = "loops written from the paper's equations; the authors' hyper-parameters"
    positive = Method.positive | {"total_classes"}
    presets = {
        "imagenet": {
            "epochs": 60,
            "milestones": (1 / 3, 1 / 2, 2 / 3, 5 / 6),
            "weight_decay": 1e-5,
            "backbone": "resnet18",
        },
        "digits": DIGITS,
        "podnet": {"weight_decay": 5e-5},
        "imagenet podnet": {"lr": 1.0, "batch_size": 64, "weight_decay": 1e-5},
    }
    switch = "variant"

    @property
    def backbone_fidelity(self) -> Fidelity:
        return "released" if self.variant == "podnet" else "paper"

    @property
    def rectifies(self) -> bool:
        return self.variant == "podnet"

    def of_run(self, classes: int) -> ICaRL:
        return replace(self, total_classes=self.total_classes or classes)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            bce = icarl(student.logits, targets, None if teacher is None else teacher.logits)
            seen = old + new
            return {"bce": bce if self.variant == "podnet" else bce * seen / (self.total_classes or seen)}

        lr = stepwise(self.lr, self.epochs, self.milestones, 0.2)
        return [Phase("train", loss, self.epochs, lr, distils=old > 0)]
