"""Nearest class mean (Mensink et al., PAMI 2013): new classes cost one mean each, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.methods.base import DIGITS, IMAGENET, Batches, State
from podnet.methods.closed import Frozen
from podnet.nets.network import Network


@dataclass(frozen=True, kw_only=True)
class NCM(Frozen):
    """The class whose mean feature is nearest, over all its images; features are those after the first task.

    State: `totals` (classes, D), the sum of each class's normalised features. Sums add up, so tasks in any order give
    the means of all images together.
    """

    name = "ncm"
    summary = "Nearest class mean on the features of the first task, or of a pretrained network (Mensink et al., 2013)"
    year = 2013
    verified = "scikit-learn's nearest neighbour among the means of the same features"
    inferences = ("nme",)
    no_inference = "no CNN: the nearest mean is the classifier."
    presets = {"imagenet": IMAGENET, "digits": DIGITS}

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        features, targets = batches.features()
        unit = F.normalize(features).double().cpu()
        totals = torch.zeros(network.classifier.classes, unit.shape[1], dtype=torch.float64)
        if state:
            totals[: len(state["totals"])] = state["totals"]
        return {"totals": totals.index_add_(0, targets.cpu(), unit)}

    def without_class(self, network: Network, label: int, state: State) -> State:
        return {"totals": torch.cat([state["totals"][:label], state["totals"][label + 1 :]])}

    def class_means(self, state: State) -> Tensor:
        return F.normalize(state["totals"]).float()
