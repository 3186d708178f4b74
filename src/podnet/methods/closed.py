"""What the closed forms share: a network that stays as it is after the first task, and ridge regression on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from podnet.errors import ConfigError
from podnet.fidelity import Fidelity
from podnet.methods.base import Batches, Exemplars, Method, State
from podnet.methods.phases import Phase, cross_entropy, stepwise
from podnet.nets.lifted import LiftedClassifier
from podnet.nets.network import Network
from podnet.ridge import Sums, solve

AT_ONCE = 1024  # images whose lifted features are held at a time


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
        if old or state or self.freeze:  # with --visits no class need be old
            return []
        lr = stepwise(self.lr, self.epochs, self.milestones, 0.1)
        return [Phase("train", cross_entropy, self.epochs, lr, soft_targets=True)]


@dataclass(frozen=True, kw_only=True)
class LiftedRidge(Frozen):
    """ACIL and RanPAC: with H = relu(X Lᵀ), L a random layer, and Y the indicators of the classes, the classifier is

        W = (Σ HᵀH + λ I)⁻¹ Σ HᵀY,

    where both sums are over the images of all tasks: tasks in any order, and one task with all images, give the same W.

    State: `gram`, the upper triangle of Σ HᵀH; `totals` (classes, expansion), the transpose of Σ HᵀY; `counts`, images
    of each class; `strength`, the λ of the last solution. The sums are float64: λ may be below the rounding of float32.
    """

    expansion: int  # the number of lifted features

    inferences = ("cnn",)
    no_inference = "no NME: nothing of single images or of their means is kept."
    positive = Method.positive | {"expansion"}

    def strength(self, classifier: LiftedClassifier, features: Tensor, targets: Tensor, state: State) -> float:
        """λ, given the features (N, D) of the task and what the task before left."""
        raise NotImplementedError

    def classifier(self, dim: int) -> LiftedClassifier:
        return LiftedClassifier(dim, self.expansion)

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        return self.after_features(network, *batches.features(), state)

    @torch.no_grad()
    def after_features(self, network: Network, features: Tensor, targets: Tensor, state: State) -> State:
        """Solve with these features (N, D) added; returns what is kept."""
        classifier, targets = network.classifier, targets.to(features.device)
        assert isinstance(classifier, LiftedClassifier)
        strength = self.strength(classifier, features, targets, state)
        parts = zip(features.split(AT_ONCE), targets.split(AT_ONCE), strict=True)
        lifted = ((classifier.lifted(part.double()), labels) for part, labels in parts)
        sums = Sums.kept_in(state, self.expansion, features.device).with_parts(lifted, classifier.classes)
        kept = sums.as_state(strength)
        try:
            classifier.assign(solve(sums, strength))
        except ValueError as error:
            raise ConfigError(
                f"with a ridge of {strength:g} the classifier of {self.name} cannot be solved for; "
                "give a larger one, or a smaller expansion."
            ) from error
        return kept

    def without_class(self, network: Network, label: int, state: State) -> State:
        return without_sums_of(label, state)


def without_sums_of(label: int, state: State) -> State:
    """The other classes keep their weights. The images of this one stay in the Gram matrix, as of no class, which
    is right for a fixed λ.
    """
    rest = torch.arange(len(state["counts"])) != label
    return state | {"totals": state["totals"][rest], "counts": state["counts"][rest]}
