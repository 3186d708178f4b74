"""PODNet+: PODNet's first task, then its pooled outputs and a ridge regression in closed form. From this project.

The first task is PODNet's: NCA loss and Local Similarity Classifier. Then the backbone stays as it is, so there is
nothing to distil, and no exemplar is kept. An image x is described by its last maps, pooled to a small grid of cells,
each normalised, averaged with those of its mirror image:

    h(x) = [pool(m_{L-1}) / |pool(m_{L-1})|, pool(m_L) / |pool(m_L)|]

and lifted by a random layer R and ReLU, as in ACIL. The classifier is the ridge regression on relu(R h) of all images
ever seen. It needs only sums over them (`podnet.ridge`), so tasks in any order give the same classifier as all images
at once. λ is chosen in the first task by the exact leave-one-out error.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.methods.base import Batches, Features, State
from podnet.methods.closed import without_sums_of
from podnet.methods.phases import Phase, all_but
from podnet.methods.podnet import PODNet
from podnet.nets.backbones import Backbone
from podnet.nets.lifted import FirstSimilarThenSolved
from podnet.nets.network import Network
from podnet.ridge import Fitted, Sums, packed

AT_ONCE = 2000  # images whose lifted features are held at a time


@dataclass(frozen=True, kw_only=True)
class PODNetPlus(PODNet):
    """PODNet's first task, then ridge regression on pooled outputs of a backbone that stays as it is.

    State: the sums of `podnet.ridge`, with the upper half of the Gram matrix in `gram`; and λ in `strength`.
    """

    cells: int = 2  # the maps are pooled to cells x cells
    maps: int = 2  # how many of the last maps are pooled
    both_sides: bool = True  # average an image with its mirror image, where that shows the same class
    expansion: int = 2000  # the number of lifted features; 0: the pooled maps as they are

    name = "podnet-plus"
    summary = "PODNet's first task, then its pooled outputs and ridge regression in closed form; no exemplars"
    idea = "closed form"
    year = 2026
    verified = "scikit-learn's ridge on the same features, and one task with all images"
    inferences = ("cnn",)
    no_inference = "no NME: nothing of single images or of their means is kept."
    exemplars = "none"
    fixed = True
    positive = PODNet.positive | {"cells", "maps"}

    @property
    def averages_mirrors(self) -> bool:
        return self.both_sides

    def network(self, backbone: Backbone) -> Network:
        dim = sum(backbone.map_channels()[-self.maps :]) * self.cells**2
        classifier = FirstSimilarThenSolved(self.classifier(backbone.dim), dim, self.describe, self.expansion)
        return Network(backbone, classifier, view=classifier.view)

    def describe(self, maps: list[Tensor]) -> Tensor:
        return pooled(maps[-self.maps :], self.cells)

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        network.classifier.add_classes(new)

    def of_first_task(self) -> PODNet:
        return PODNet(**{field.name: getattr(self, field.name) for field in fields(PODNet)})

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        if old or state:  # with --visits no class need be old
            return []
        (train,) = super().phases(old, new, state)

        def parameters(network: Network) -> list[nn.Parameter]:
            assert isinstance(network.classifier, FirstSimilarThenSolved)
            return all_but(network.classifier.linear.parameters(), train.parameters(network))

        return [replace(train, parameters=parameters)]

    @torch.no_grad()
    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        classifier = network.classifier
        assert isinstance(classifier, FirstSimilarThenSolved)
        classifier.solved.fill_(True)
        if not state:
            classifier.lift.copy_(torch.randn(classifier.lift.shape))  # drawn on the CPU, whose generator is seeded
        features, targets = batches.features()
        targets = targets.cpu()

        def lifted(rows: Tensor) -> Tensor:
            return F.normalize(classifier.lifted(features[rows])).cpu().double()

        parts = torch.arange(len(targets)).split(AT_ONCE)
        before = Sums.kept_in(state, classifier.linear.dim, torch.device("cpu"))
        sums = before.with_parts(((lifted(rows), targets[rows]) for rows in parts), classifier.classes)
        some = torch.arange(0, len(targets), max(1, len(targets) // AT_ONCE))  # to choose λ by
        strength = float(state["strength"]) if state else None
        fitted = Fitted(lifted(some), targets[some], classifier.classes, strength, sums)
        classifier.linear.assign(fitted.linear.weights.float(), fitted.linear.bias.float())
        return sums.as_state(fitted.strength)

    def without_class(self, network: Network, label: int, state: State) -> State:
        """λ is relative to the spread of the classes' own images: without those of this one."""
        own = state["totals"][label]
        gram = state["gram"] - packed(torch.outer(own, own) / state["counts"][label])
        return without_sums_of(label, state) | {"gram": gram}


def pooled(maps: list[Tensor], cells: int) -> Tensor:
    """The maps (B, C, H, W) side by side, each pooled to (B, C * cells²) of unit length."""
    return torch.cat([F.normalize(F.adaptive_avg_pool2d(each, cells).flatten(1)) for each in maps], dim=1)
