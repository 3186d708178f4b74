"""RanPAC: Random Projections and Pre-trained Models for Continual Learning (McDonnell et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from podnet.methods.base import DIGITS, State
from podnet.methods.closed import LiftedRidge
from podnet.nets.lifted import LiftedClassifier
from podnet.ridge import best_on_held_out

RIDGES = tuple(10.0**exponent for exponent in range(-8, 9))  # the paper's candidates for λ
HELD_OUT = 0.2
MOST = 5000  # images of a task that choose λ, as many as a task of the paper has on CIFAR-100


@dataclass(frozen=True, kw_only=True)
class RanPAC(LiftedRidge):
    """Features of a pretrained network, projected at random; class prototypes decorrelated by their Gram matrix.

    λ is chosen anew in each task: solved with 80 % of its images, it has the least squared error on the others (of
    those within 1 % of the least, the largest; the paper takes the least itself). With freeze off, the first task
    trains the network before its features are taken: all of it, while the paper trains adapters inside a vision
    transformer.
    """

    expansion: int = 10000  # M, the number of projections
    backbone: str = "lite0"
    weights: str = "package"
    freeze: bool = True
    epochs: int = 20
    lr: float = 0.01

    name = "ranpac"
    summary = "Random projections of pretrained features, decorrelated prototypes (McDonnell et al., 2023)"
    year = 2023
    verified = "scikit-learn's ridge on the images of all tasks; λ against scikit-learn solving for each"
    presets = {
        # Pretrained networks see coloured images: here the first task trains one.
        "digits": {**DIGITS, "lr": 0.1, "expansion": 1024, "backbone": "resnet32", "weights": "none", "freeze": False}
    }

    def strength(self, classifier: LiftedClassifier, features: Tensor, targets: Tensor, state: State) -> float:
        if len(features) < 2:  # nothing to hold out
            return float(state["strength"]) if state else 1.0
        chosen = torch.randperm(len(features))[:MOST].to(features.device)
        lifted = classifier.lifted(features[chosen].double())
        return best_on_held_out(lifted, targets[chosen], RIDGES, HELD_OUT)
