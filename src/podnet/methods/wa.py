"""WA: Maintaining Discrimination and Fairness in Class Incremental Learning (Zhao et al., CVPR 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.losses import distillation
from podnet.methods.base import DIGITS, Batches, Method, State
from podnet.methods.phases import Phase, stepwise
from podnet.nets.classifiers import GrowingClassifier
from podnet.nets.network import Network, Outputs

TINY = 1e-12  # instead of the norm of weights that are all 0


class PositiveClassifier(GrowingClassifier):
    """o = Wᵀ φ without biases, and with weights of 0 or more: then their norms are what decides between classes.

    Negative weights are set to 0 before each use. In training this is the paper's weight clipping after each update.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, (dim,))

    def forward(self, embedding: Tensor) -> Tensor:
        if not self.classes:
            return embedding[:, :0]
        with torch.no_grad():
            for weight in self.weights:
                weight.clamp_(min=0)
        return embedding @ torch.cat(list(self.weights)).t()


@dataclass(frozen=True, kw_only=True)
class WA(Method):
    """Distillation, (1 - λ) L_CE + λ L_KD with λ = old / (old + new), then weight aligning.

    After a task the weights of new classes, and so their outputs, are multiplied by γ = mean ‖w_old‖ / mean ‖w_new‖,
    but not by more than 1. The norm is the sum of the weights: as in the authors' code, whose classifier gets features
    after ReLU and has no negative weights either. Unlike there, the old classes begin a task with their old weights,
    not at random, and the weight decay is the same in all tasks, not divided by their number so far.
    """

    epochs: int = 250
    batch_size: int = 32
    milestones: tuple[float, ...] = (0.4, 0.6, 0.8)  # a tenth of the learning rate after these shares of the epochs
    weight_decay: float = 1e-4
    temperature: float = 2.0

    name = "wa"
    summary = "Softmax distillation, then the norms of the new classes' weights are aligned (Zhao et al., 2020)"
    idea = "distillation"
    year = 2020
    verified = "loops written from the paper's equations; the authors' norm and hyper-parameters"
    rectifies = True
    positive = Method.positive | {"temperature"}
    later = frozenset({"temperature"})
    presets = {
        "imagenet": {"epochs": 100, "milestones": (0.3, 0.6, 0.8, 0.9), "batch_size": 256, "backbone": "resnet18"},
        "digits": DIGITS,
    }

    def classifier(self, dim: int) -> PositiveClassifier:
        return PositiveClassifier(dim)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        share = old / (old + new)  # λ in the paper

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            terms = {"ce": (1 - share) * F.cross_entropy(student.logits, targets)}
            if teacher is not None:
                terms["kd"] = share * distillation(student.logits, teacher.logits, self.temperature)
            return terms

        lr = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        return [Phase("train", loss, self.epochs, lr, distils=old > 0)]

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        *old, new = (weight.detach().clamp_(min=0) for weight in network.classifier.weights)  # each (classes, D)
        if old:
            gamma = torch.cat(old).sum(1).mean() / new.sum(1).mean().clamp(min=TINY)
            new *= gamma.clamp(max=1)
        return state
