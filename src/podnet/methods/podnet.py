"""PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning (Douillard et al., ECCV 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import ClassVar, Literal

from torch import Tensor

from podnet.data.augment import Intensity
from podnet.fidelity import Fidelity
from podnet.losses import Pooling, gradcam, lsc_cross_entropy, nca, perceptual_features, perceptual_style, pod, pod_flat
from podnet.methods.base import DIGITS, Features, Idea, Method, State, imprint_new_classes
from podnet.methods.phases import Phase, all_but_old_classes, balanced, class_weights, constant, cosine, without_scale
from podnet.nets.classifiers import LocalSimilarityClassifier
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class PODNet(Method):
    """POD through the whole network, a Local Similarity Classifier, the NCA loss, imprinting, balanced fine-tuning."""

    lambda_c: float = 3.0  # weight of POD on the maps
    lambda_f: float = 1.0  # weight of POD-flat on the embedding
    distillation: Pooling | Literal["perceptual_features", "perceptual_style", "gradcam", "attention"] = "spatial"
    adaptive_c: bool = True  # whether λ_c grows with √(N/T), as λ_f does
    proxies: int = 10  # per class; 1 is the cosine classifier
    classification: Literal["nca", "cross_entropy"] = "nca"
    margin: float = 0.6
    eta: float = 1.0  # initial scale of the similarities
    learn_eta: bool = True
    sharpness: float = 1.0  # multiplies similarities before the softmax over a class's proxies
    imprint_first: bool = False  # imprint the first classes too: for a pretrained backbone; not in the paper
    train_batchnorm: Literal["moving", "fixed"] = "moving"  # its statistics in the main phase; they move in the paper
    finetune_epochs: int = 20
    finetune_lr: float = 0.05
    finetune_batchnorm: Literal["fixed", "moving"] = "fixed"  # its statistics; they move in the released code
    intensity: Intensity = "scale"
    fidelity: Fidelity = "released"

    name = "podnet"
    summary = "Pooled Outputs Distillation and a Local Similarity Classifier (Douillard et al., 2020)"
    idea: ClassVar[Idea] = "distillation"
    year = 2020
    verified = "the authors' released code: losses, proxies and exemplars to 1e-13 (docs/fidelity.md)"
    positive = Method.positive | {"proxies", "eta", "sharpness"}
    later = frozenset(
        {"lambda_c", "lambda_f", "distillation", "adaptive_c", "finetune_epochs", "finetune_lr", "finetune_batchnorm"}
    )
    switch = "fidelity"
    presets = {
        "imagenet": {
            "lambda_c": 8.0,
            "lambda_f": 10.0,
            "epochs": 90,
            "weight_decay": 1e-4,
            "finetune_lr": 0.01,
            "backbone": "resnet18",
        },
        # Not from the paper: weaker distillation than for ImageNet, and similarities that matter from the first update.
        # BatchNorm's statistics of a million photos are better than those of a few.
        "pretrained": {
            "lambda_c": 3.0,
            "lambda_f": 1.0,
            "eta": 10.0,
            "finetune_lr": 0.05,
            "imprint_first": True,
            "train_batchnorm": "fixed",
        },
        "digits": {**DIGITS, "finetune_epochs": 10},
        # On few images the bias to the new class takes many updates to undo.
        "digits released": {"finetune_epochs": 40, "finetune_batchnorm": "moving"},
        "paper": {"intensity": "shift"},
        "imagenet paper": {"intensity": "none"},
        "imagenet released": {"lr": 0.05, "batch_size": 64, "weight_decay": 5e-4},
        "imagenet1000 released": {"weight_decay": 1e-4},
    }

    @property
    def backbone_fidelity(self) -> Fidelity:
        return self.fidelity

    @property
    def differentiates_maps(self) -> bool:
        return self.distillation in ("gradcam", "attention")

    def classifier(self, dim: int) -> LocalSimilarityClassifier:
        ablated = self.proxies == 1 and self.classification == "cross_entropy"  # "Cosine" of table 3a
        similarity = "cosine" if self.fidelity == "paper" or ablated else "distance"
        return LocalSimilarityClassifier(dim, self.proxies, self.eta, self.learn_eta, similarity, self.sharpness)

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        unit = self.proxies == 1 and self.fidelity == "released"
        imprint_new_classes(network, new, features, seed, unit, first=self.imprint_first)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        released = self.fidelity == "released"
        # With the NCA loss η is fixed in later tasks: an easy new class would increase it without limit.
        rests = old > 0 and self.classification == "nca" and not released
        train = Phase(
            "train",
            partial(self.loss, growth=sqrt((old + new) / new)),  # λ = √(N/T)
            self.epochs,
            cosine(self.lr, self.epochs, lag=int(released)),
            parameters=without_scale if rests else all_but_old_classes,
            distils=old > 0 and bool(self.lambda_c or self.lambda_f),
            attention=old > 0 and self.distillation in ("gradcam", "attention"),
            update_statistics=self.train_batchnorm == "moving",
            clip=5.0 if released else None,
        )
        finetune = Phase(
            "finetune",
            lambda student, teacher, targets: self.classify(student, targets),
            self.finetune_epochs,
            constant(self.finetune_lr),
            images=balanced,
            parameters=class_weights,
            update_statistics=self.finetune_batchnorm == "moving",
            clip=5.0 if released else None,
        )
        return [train, finetune] if old and self.finetune_epochs else [train]

    def loss(self, student: Outputs, teacher: Outputs | None, targets: Tensor, growth: float) -> dict[str, Tensor]:
        """Classification, and with a teacher POD and POD-flat, whose weights grow with the number of classes seen."""
        terms = self.classify(student, targets)
        if teacher is not None and self.lambda_c:
            weight = growth if self.adaptive_c else 1.0
            terms["pod"] = weight * self.lambda_c * self.distance(teacher, student)
        if teacher is not None and self.lambda_f:
            flat = pod_flat(teacher.embedding, student.embedding, self.fidelity)
            terms["pod_flat"] = growth * self.lambda_f * flat
        return terms

    def classify(self, student: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """The classification loss: equation 9, or the cross-entropy of the ablation."""
        if self.classification == "cross_entropy":
            return {"ce": lsc_cross_entropy(student.similarities, targets, student.scale)}
        # Equation 9 with one change: η gets no gradient through δ. Otherwise it would shrink to zero to save the η δ
        # that is paid until classes are 0.6 apart; at zero the loss no longer depends on the similarities.
        margin = self.margin * student.scale.detach()
        return {"nca": nca(student.logits, targets, margin=margin, fidelity=self.fidelity)}

    def distance(self, teacher: Outputs, student: Outputs) -> Tensor:
        """The distillation between maps: POD, or another paper's loss in the ablation."""
        if self.distillation == "perceptual_features":
            return perceptual_features(teacher.maps, student.maps)
        if self.distillation == "perceptual_style":
            return perceptual_style(teacher.maps, student.maps)
        if self.distillation != "gradcam" and self.distillation != "attention":
            return pod(teacher.maps, student.maps, self.distillation, self.fidelity)
        # Between Grad-CAM maps of one old class per image: the student's highest as released, else the teacher's.
        fidelity: Fidelity = self.fidelity if self.distillation == "gradcam" else "paper"  # as in Dhar et al.
        seen = student.similarities[:, : teacher.similarities.shape[1]]
        top = (seen if fidelity == "released" else teacher.similarities).argmax(1, keepdim=True)
        scores = [outputs.similarities.gather(1, top) for outputs in (teacher, student)]
        return gradcam(teacher.maps[-1], scores[0], student.maps[-1], scores[1], fidelity)
