"""PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning (Douillard et al., ECCV 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from torch import Tensor

from podnet.classifiers import LocalSimilarityClassifier
from podnet.data.augment import Intensity
from podnet.fidelity import Fidelity
from podnet.losses import Pooling, gradcam, lsc_cross_entropy, nca, perceptual_style, pod, pod_flat
from podnet.methods.base import (
    DIGITS,
    Method,
    Phase,
    all_but_old_classes,
    balanced,
    class_weights,
    constant,
    cosine,
    imprint_new_classes,
    without_scale,
)
from podnet.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class PODNet(Method):
    """POD through the whole network, a Local Similarity Classifier, the NCA loss, imprinting, balanced fine-tuning."""

    lambda_c: float = 3.0  # weight of POD on the maps
    lambda_f: float = 1.0  # weight of POD-flat on the embedding
    distillation: Pooling | Literal["gradcam", "perceptual_style"] = "spatial"
    proxies: int = 10  # per class; 1 is the cosine classifier
    classification: Literal["nca", "cross_entropy"] = "nca"
    margin: float = 0.6
    eta: float = 1.0  # the first scale of the similarities
    learn_eta: bool = True
    sharpness: float = 1.0  # of the weights of a class's proxies: multiplies similarities before their softmax
    imprint_first: bool = False  # the first classes, too: for a pretrained backbone, which the paper does not have
    finetune_epochs: int = 20
    finetune_lr: float = 0.05
    intensity: Intensity = "shift"
    fidelity: Fidelity = "paper"

    name = "podnet"
    summary = "Pooled Outputs Distillation and a Local Similarity Classifier (Douillard et al., 2020)"
    later = frozenset({"lambda_c", "lambda_f", "distillation", "finetune_epochs", "finetune_lr"})
    presets = {
        "imagenet": {
            "lambda_c": 8.0,
            "lambda_f": 10.0,
            "epochs": 90,
            "weight_decay": 1e-4,
            "finetune_lr": 0.01,
            "intensity": "none",
            "backbone": "resnet18",
        },
        # Not the paper's. Weaker distillation than for ImageNet, and similarities that count from the first update.
        "pretrained": {"lambda_c": 3.0, "lambda_f": 1.0, "eta": 10.0, "finetune_lr": 0.05, "imprint_first": True},
        "digits": {**DIGITS, "finetune_epochs": 10},
        "released": {"intensity": "scale"},
        "imagenet released": {"lr": 0.05, "batch_size": 64, "weight_decay": 5e-4},
        "imagenet1000 released": {"weight_decay": 1e-4},
    }

    @property
    def form(self) -> Fidelity:
        return self.fidelity

    def classifier(self, dim: int) -> LocalSimilarityClassifier:
        similarity = "cosine" if self.fidelity == "paper" else "distance"
        return LocalSimilarityClassifier(dim, self.proxies, self.eta, self.learn_eta, similarity, self.sharpness)

    def grow(self, network: Network, new: int, features: Callable[[], tuple[Tensor, Tensor]], seed: int) -> None:
        imprint_new_classes(network, new, features, seed, first=self.imprint_first)

    def phases(self, old: int, new: int) -> list[Phase]:
        weight = sqrt((old + new) / new)  # λ = √(N/T)
        released = self.fidelity == "released"

        def classify(student: Outputs, targets: Tensor) -> dict[str, Tensor]:
            if self.classification == "cross_entropy":
                return {"ce": lsc_cross_entropy(student.similarities, targets, student.scale)}
            # Equation 9 with one freedom taken: η does not learn through δ. It would, to save the η δ that is paid
            # until classes are 0.6 apart, shrink to zero, where the loss no longer looks at the similarities.
            margin = self.margin * student.scale.detach()
            return {"nca": nca(student.logits, targets, margin=margin, form=self.fidelity)}

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            terms = classify(student, targets)
            if teacher is not None and self.lambda_c:
                terms["pod"] = weight * self.lambda_c * self.distance(teacher, student)
            if teacher is not None and self.lambda_f:
                flat = pod_flat(teacher.embedding, student.embedding, self.fidelity)
                terms["pod_flat"] = weight * self.lambda_f * flat
            return terms

        # Nor does η learn with the NCA loss in later tasks, where an easy new class would drive it up without end.
        rests = old > 0 and self.classification == "nca" and not released
        train = Phase(
            "train",
            loss,
            self.epochs,
            cosine(self.lr, self.epochs, lag=int(released)),
            parameters=without_scale if rests else all_but_old_classes,
            distils=old > 0 and bool(self.lambda_c or self.lambda_f),
            attention=old > 0 and self.distillation == "gradcam",
            clip=5.0 if released else None,
        )
        finetune = Phase(
            "finetune",
            lambda student, teacher, targets: classify(student, targets),
            self.finetune_epochs,
            constant(self.finetune_lr),
            images=balanced,
            parameters=class_weights,
            update_statistics=released,
            clip=5.0 if released else None,
        )
        return [train, finetune] if old and self.finetune_epochs else [train]

    def distance(self, teacher: Outputs, student: Outputs) -> Tensor:
        """The distillation between maps: POD, or the two losses of other papers in the ablation."""
        if self.distillation == "gradcam":
            top = teacher.similarities.argmax(1, keepdim=True)  # the old class the teacher sees
            scores = [outputs.similarities.gather(1, top) for outputs in (teacher, student)]
            return gradcam(teacher.maps[-1], scores[0], student.maps[-1], scores[1])
        if self.distillation == "perceptual_style":
            return perceptual_style(teacher.maps, student.maps)
        return pod(teacher.maps, student.maps, self.distillation, self.fidelity)
