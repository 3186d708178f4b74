"""What ACIL and RanPAC share: ridge regression on features that a fixed random layer lifts to many more dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from podnet.errors import ConfigError
from podnet.methods.base import Batches, Method, State
from podnet.methods.frozen import Frozen
from podnet.nets.lifted import LiftedClassifier
from podnet.nets.network import Network
from podnet.ridge import Sums, solve

AT_ONCE = 1024  # images whose lifted features are held at a time


@dataclass(frozen=True, kw_only=True)
class LiftedRidge(Frozen):
    """With H = relu(X Lᵀ), L a random layer, and Y the indicators of the classes, the classifier is

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
        classifier, device = network.classifier, features.device
        assert isinstance(classifier, LiftedClassifier)
        targets = targets.to(device)

        def lifted() -> Iterator[tuple[Tensor, Tensor]]:
            for part, labels in zip(features.split(AT_ONCE), targets.split(AT_ONCE), strict=True):
                yield classifier.lifted(part.double()), labels

        strength = self.strength(classifier, features, targets, state)
        sums = Sums.kept_in(state, self.expansion, device).with_parts(lifted(), classifier.classes)
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
    """The other classes keep their weights. The images of this one stay in the Gram matrix, as of no class."""
    rest = torch.arange(len(state["counts"])) != label
    return state | {"totals": state["totals"][rest], "counts": state["counts"][rest]}
