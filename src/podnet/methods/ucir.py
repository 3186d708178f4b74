"""UCIR: Learning a Unified Classifier Incrementally via Rebalancing (Hou et al., CVPR 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch.nn.functional as F
from torch import Tensor

from podnet.losses import less_forget, margin_ranking
from podnet.methods.base import DIGITS, IMAGENET, Features, Method, State, imprint_new_classes
from podnet.methods.phases import Phase, all_but_old_classes, balanced, class_weights, stepwise
from podnet.nets.classifiers import CosineClassifier
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class UCIR(Method):
    """A cosine classifier, the less-forget constraint on the embedding, a margin between old and new classes."""

    milestones: tuple[float, ...] = (1 / 2, 3 / 4)  # a tenth of the learning rate after these shares of the epochs
    lambda_base: float = 5.0  # weight of less-forget, times √(old/new)
    ranking_weight: float = 1.0
    negatives: int = 2  # the hardest new classes for an exemplar
    margin: float = 0.5
    finetune_epochs: int = 0  # class-balanced fine-tuning of the classifier; the authors use it on ImageNet
    finetune_lr: float = 0.01
    backbone: str = "resnet32-ucir"  # the authors' own; the PODNet paper used it too

    name = "ucir"
    summary = "Cosine classifier, less-forget constraint and margin ranking (Hou et al., 2019)"
    idea = "distillation"
    year = 2019
    verified = "loops written from the paper's equations; the authors' hyper-parameters and ResNet"
    positive = Method.positive | {"negatives"}
    later = frozenset({"lambda_base", "ranking_weight", "negatives", "margin", "finetune_epochs", "finetune_lr"})
    presets = {
        "imagenet": {**IMAGENET, "lambda_base": 10.0, "finetune_epochs": 20, "backbone": "resnet18-ucir"},
        "digits": DIGITS,
    }

    def classifier(self, dim: int) -> CosineClassifier:
        return CosineClassifier(dim)

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        imprint_new_classes(network, new, features, seed, unit=True)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        weight = self.lambda_base * sqrt(old / new)

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            terms = {"ce": F.cross_entropy(student.logits, targets)}
            if old:
                ranking = margin_ranking(student.similarities, targets, old, self.negatives, self.margin)
                terms["ranking"] = self.ranking_weight * ranking
            if teacher is not None:
                terms["less_forget"] = weight * less_forget(teacher.embedding, student.embedding)
            return terms

        lr = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        train = Phase("train", loss, self.epochs, lr, parameters=all_but_old_classes, distils=old > 0)
        finetune = Phase(
            "finetune",
            loss,
            self.finetune_epochs,
            stepwise(self.finetune_lr, self.finetune_epochs, (1 / 2,), 0.1),
            images=balanced,
            parameters=class_weights,
            update_statistics=False,
        )
        return [train, finetune] if old and self.finetune_epochs else [train]
