"""DER: Dynamically Expandable Representation for Class Incremental Learning (Yan, Xie and He, CVPR 2021).

Without the pruning of its branches: the network grows by a whole backbone each task. That makes it a reference for what
frozen features and a growing network can reach, not a fair competitor of methods of constant size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from podnet.data.augment import Intensity
from podnet.methods.base import DIGITS, Features, Method, State
from podnet.methods.phases import Phase, balanced, class_weights, cross_entropy, stepwise, warmed_up
from podnet.nets.branches import Branches, BranchesClassifier
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class DER(Method):
    """A new branch for each task, trained beside the frozen ones; then a new classifier on balanced images.

    Defaults are the authors' for CIFAR-100. Their network there is a ResNet-18 for small images, with ReLU before the
    features; ours is ResNet-32, as for all methods here. As in the paper, the classifier of a new task begins with the
    old weights; the released code begins at random, and again after the warm-up. The first task is trained as the later
    ones are; for a first task of 50 classes the authors' script has 200 epochs and other milestones.
    """

    epochs: int = 170
    warmup: float = 0.053  # the learning rate rises over this share of the epochs: the first 9 of 170
    milestones: tuple[float, ...] = (0.647, 0.765)  # 110 and 130 of 170 epochs; then a tenth of the learning rate
    lambda_a: float = 1.0  # weight of the auxiliary loss
    temperature: float = 5.0  # δ, when the classifier is trained again
    classifier_epochs: int = 30
    classifier_lr: float = 0.1  # a tenth of it after half of the epochs
    intensity: Intensity = "scale"

    name = "der"
    summary = "A frozen branch for each task, a classifier on all of them (Yan et al., 2021); no pruning"
    idea = "expansion"
    year = 2021
    verified = "loops written from the paper's equations; the authors' hyper-parameters"
    positive = Method.positive | {"temperature"}
    later = frozenset({"lambda_a", "temperature", "classifier_epochs", "classifier_lr"})
    presets = {
        "imagenet": {
            "epochs": 220,
            "warmup": 0.086,
            "milestones": (0.364, 0.636, 0.818, 0.909),
            "temperature": 1.0,
            "batch_size": 256,
            "intensity": "none",
            "backbone": "resnet18",
        },
        "digits": {**DIGITS, "classifier_epochs": 20},
    }

    def classifier(self, dim: int) -> BranchesClassifier:
        return BranchesClassifier(dim)

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        """Section 3.2: the new branch starts as the newest one; old weights of the classifier stay beside new ones."""
        self.rebuild(network, new)

    def rebuild(self, network: Network, new: int) -> None:
        if network.classifier.sizes:
            _branches(network).add()
            _classifier(network).add_branch()
        else:
            network.backbone = Branches(network.backbone)
        network.classifier.add_classes(new)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        lr = warmed_up(stepwise(self.lr, self.epochs, self.milestones, 0.1), round(self.warmup * self.epochs))
        train = Phase("train", cross_entropy, self.epochs, lr, parameters=newest_branch)
        if old and self.lambda_a:
            train = replace(train, parameters=with_auxiliary, penalty=self.auxiliary)
        # Section 3.4: a classifier without bias to the new classes, with smoother outputs.
        classifier = Phase(
            "classifier",
            lambda student, teacher, targets: {"ce": F.cross_entropy(student.logits / self.temperature, targets)},
            self.classifier_epochs,
            stepwise(self.classifier_lr, self.classifier_epochs, (0.5,), 0.1),
            images=balanced,
            start=lambda network: _classifier(network).forget(),
            parameters=class_weights,
            update_statistics=False,
        )
        return [train, classifier] if old and self.classifier_epochs else [train]

    def auxiliary(self, network: Network, student: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Section 3.2: the newest branch tells new classes from each other and from all old ones, which are one."""
        classifier = _classifier(network)
        old = classifier.classes - classifier.sizes[-1]
        logits = classifier.of_newest_branch(student.embedding)  # (B, 1 + new)
        return {"auxiliary": self.lambda_a * F.cross_entropy(logits, (targets - old + 1).clamp(min=0))}


def newest_branch(network: Network) -> list[nn.Parameter]:
    """The newest branch and the classifier's weights of all classes."""
    return [*_branches(network).newest.parameters(), *network.classifier.weights]


def with_auxiliary(network: Network) -> list[nn.Parameter]:
    """The same and the auxiliary classifier."""
    auxiliary = _classifier(network).auxiliary
    assert auxiliary is not None
    return [*newest_branch(network), auxiliary]


def _branches(network: Network) -> Branches:
    assert isinstance(network.backbone, Branches)
    return network.backbone


def _classifier(network: Network) -> BranchesClassifier:
    assert isinstance(network.classifier, BranchesClassifier)
    return network.classifier
