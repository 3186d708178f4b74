"""ACIL: Analytic Class-Incremental Learning with Absolute Memorization (Zhuang et al., NeurIPS 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from podnet.methods.base import DIGITS, IMAGENET, State
from podnet.methods.closed import LiftedRidge
from podnet.nets.lifted import LiftedClassifier


@dataclass(frozen=True, kw_only=True)
class ACIL(LiftedRidge):
    """The first task trains the network; its features are lifted (equation 2) and W is equation 7, with a fixed γ.

    The paper updates the inverse of Σ HᵀH + γ I from task to task (equation 10). Here the sum itself is kept and solved
    again: the same W, without rounding that adds up. The random layer has the scale of the authors' code, uniform
    within ±1/√D: γ is meant for it.
    """

    expansion: int = 8192  # d_fe, the number of lifted features
    gamma: float = 0.1

    name = "acil"
    summary = "Ridge regression on randomly lifted features, network fixed after the first task (Zhuang et al., 2022)"
    year = 2022
    verified = "scikit-learn's ridge on the images of all tasks; the recursion of the paper's theorem 3.1"
    later = frozenset({"gamma"})
    positive = LiftedRidge.positive | {"gamma"}
    presets = {"imagenet": {**IMAGENET, "expansion": 15000}, "digits": {**DIGITS, "expansion": 1024}}

    def classifier(self, dim: int) -> LiftedClassifier:
        classifier = super().classifier(dim)
        if not classifier.lift.is_meta:
            classifier.lift.uniform_(-1 / math.sqrt(dim), 1 / math.sqrt(dim))
        return classifier

    def strength(self, classifier: LiftedClassifier, features: Tensor, targets: Tensor, state: State) -> float:
        return self.gamma
