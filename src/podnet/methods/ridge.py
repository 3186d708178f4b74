"""Fixed features and ridge regression: nothing is trained, so nothing is forgotten.

The classifier is solved in closed form (`podnet.ridge`) from the features of all photos, or from their sums. Both add
up over tasks: tasks in any order give the same classifier as one task with all photos. The nearest class mean stands
beside it. Every photo is also classified by the model of all the others: an honest measure without held-out photos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.losses import FEWEST, best_temperature
from podnet.methods.base import Batches, Exemplars, Method, State
from podnet.methods.closed import without_sums_of
from podnet.methods.phases import Phase
from podnet.nets.backbones import Backbone
from podnet.nets.classifiers import SolvedClassifier
from podnet.nets.network import Network
from podnet.ridge import AT_ONCE, MOST_COMPARED, Fitted, Sums

Keep = Literal["features", "photos", "sums"]  # what a model keeps of its photos


@dataclass(frozen=True, kw_only=True)
class Ridge(Method):
    """Ridge regression on the features of a network that stays as it is.

    State: `targets` of all photos so far, their `features` (or their sums, with keep="sums"), and by leave-one-out
    their labels (`left_out_cnn`, `left_out_nme`) and highest scores (`familiar`, (N, 2)), and the `temperatures`.
    """

    keep: Literal["features", "sums"] = "features"
    backbone: str = "lite0"

    name = "ridge"
    summary = "Fixed features and ridge regression in closed form"
    idea = "closed form"
    year = 1970
    verified = "scikit-learn's ridge on the same features, and models built without each photo"
    exemplars: ClassVar[Exemplars] = "none"
    wants_features = True
    fixed = True
    presets = {"digits": {"backbone": "resnet32"}}  # random features: the pretrained networks see coloured images

    def network(self, backbone: Backbone) -> Network:
        return Network(backbone, self.classifier(backbone.dim), view=signed_roots)

    def classifier(self, dim: int) -> SolvedClassifier:
        return SolvedClassifier(dim)

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        return []

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        return self.after_features(network, *batches.features(), state)

    def after_features(self, network: Network, features: Tensor, targets: Tensor, state: State) -> State:
        """The classifier with these features (N, D) added, and what is kept."""
        unit = F.normalize(features).half().cpu()
        if self.keep == "sums":
            return self._summed(network, unit, targets, state)
        if state:
            unit, targets = torch.cat([state["features"], unit]), torch.cat([state["targets"], targets])
        return self._solved(network, unit, targets)

    def without_class(self, network: Network, label: int, state: State) -> State:
        kept = state["targets"] != label
        targets = state["targets"][kept]
        targets = targets - (targets > label).long()
        if self.keep == "features":
            return self._solved(network, state["features"][kept], targets)
        own, classes = state["totals"][label].double(), len(state["counts"]) - 1
        return without_sums_of(label, state) | {
            "targets": targets,
            "gram": (state["gram"].double() - torch.outer(own, own) / state["counts"][label]).float(),
            "familiar": state["familiar"][kept],
            **{name: _without_answer(state[name][kept], label, targets, classes) for name in LABELS[1:]},
        }

    def require_whole(self, state: State, classes: int, dim: int) -> None:
        """Check the state of an untrusted file: ValueError if it is not what this method keeps."""
        count = len(state["targets"])
        expected: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "temperatures": (torch.float32, (2,)),
            "familiar": (torch.float32, (count, 2)),
            **dict.fromkeys(LABELS, (torch.int64, (count,))),
        }
        if self.keep == "sums":
            sums = {"gram": (dim, dim), "totals": (classes, dim)}
            expected |= {name: (torch.float32, shape) for name, shape in sums.items()}
            expected["counts"] = (torch.int64, (classes,))
        else:
            expected["features"] = (torch.float16, (count, dim))
        if {name: (value.dtype, tuple(value.shape)) for name, value in state.items()} != expected:
            raise ValueError("the data kept from its photos has wrong names, types or shapes")
        if not all(value.isfinite().all() for value in state.values()) or not (state["temperatures"] > 0).all():
            raise ValueError("the data kept from its photos has a NaN, an infinite number or a temperature not above 0")
        for name in LABELS:
            if not ((state[name] >= 0) & (state[name] < classes)).all():
                raise ValueError("a photo has a class that the model does not have")
        counts = torch.bincount(state["targets"], minlength=classes)
        if not counts.all() or not torch.equal(state.get("counts", counts), counts):
            raise ValueError("a class has no photos, or its photo count is wrong")

    def class_means(self, state: State) -> Tensor:
        if self.keep == "sums":
            return F.normalize(state["totals"].float())
        return F.normalize(_totals(state["features"], state["targets"]))

    def _solved(self, network: Network, unit: Tensor, targets: Tensor) -> State:
        totals, counts = _totals(unit, targets), torch.bincount(targets)
        fitted = Fitted(unit, targets, len(counts))
        return {"features": unit, **_settled(network, fitted, unit, totals, counts)}

    def _summed(self, network: Network, unit: Tensor, targets: Tensor, state: State) -> State:
        sums = Sums.of(unit, targets, network.classifier.classes)
        if state:
            sums = Sums(state["gram"].double(), state["totals"].double(), state["counts"]).plus(sums)
        fitted = Fitted(unit, targets, len(sums.counts), sums=sums)
        fresh = _settled(network, fitted, unit, sums.totals.float(), sums.counts)
        joined = {name: torch.cat([state[name], fresh[name]]) if state else fresh[name] for name in PER_PHOTO}
        if state:  # each lesson was measured on its own photos only: one of few must not decide for all
            judged_now = int((sums.counts[targets] > 1).sum())
            now = judged_now if judged_now >= FEWEST else 0
            before = len(state["targets"]) * (state["temperatures"] != torch.tensor(UNMEASURED))
            both = before * state["temperatures"].log() + now * fresh["temperatures"].log()
            mean = (both / (before + now).clamp(min=1)).exp()
            fresh["temperatures"] = torch.where(before + now > 0, mean, state["temperatures"])
        kept = {"gram": sums.gram.float(), "totals": sums.totals.float(), "counts": sums.counts}
        return fresh | joined | kept


@dataclass(frozen=True, kw_only=True)
class RidgeWithPhotos(Ridge):
    """The same, and exemplars are kept: photos to look at, or to train on later."""

    name = "ridge-photos"
    exemplars = "needed"


def signed_roots(maps: list[Tensor], embedding: Tensor) -> Tensor:
    """With roots a few large features no longer decide alone."""
    return embedding.sign() * embedding.abs().clamp_min(1e-12).sqrt()


UNMEASURED = 0.1  # temperature if there are too few photos to fit one
LABELS = ("targets", "left_out_cnn", "left_out_nme")
PER_PHOTO = (*LABELS, "familiar")


def _settled(network: Network, fitted: Fitted, unit: Tensor, totals: Tensor, counts: Tensor) -> State:
    """Set the classifier, and classify every photo by the model of the others."""
    assert isinstance(network.classifier, SolvedClassifier)
    network.classifier.assign(fitted.linear.weights.float(), fitted.linear.bias.float())
    every = -(-len(fitted.labels) // max(MOST_COMPARED, AT_ONCE // fitted.classes))
    compared: list[tuple[Tensor, Tensor, Tensor]] = []  # scores of both kinds of every so many, to fit temperatures
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for rows, solved in fitted.left_out():
        nearest = _left_out_of_means(unit[rows].float(), fitted.labels[rows], totals, counts)
        highest = torch.stack([solved.amax(1).float(), nearest.amax(1)], dim=1)
        found.append((solved.argmax(1), nearest.argmax(1), highest))
        some = (rows % every == 0) & (counts[fitted.labels[rows]] > 1)  # the only photo of a class cannot be judged
        compared.append((solved[some], nearest[some].double(), fitted.labels[rows][some]))
    cnn, nme, familiar = (torch.cat(column) for column in zip(*found, strict=True))
    solved, nearest, labels = (torch.cat(column) for column in zip(*compared, strict=True))
    temperatures = [best_temperature(scores, labels) or UNMEASURED for scores in (solved, nearest)]
    return {
        "targets": fitted.labels,
        "left_out_cnn": cnn,
        "left_out_nme": nme,
        "familiar": familiar,
        "temperatures": torch.tensor(temperatures),
    }


def _totals(unit: Tensor, targets: Tensor) -> Tensor:
    """The sum of each class's features, (classes, D)."""
    found = torch.zeros(int(targets.max()) + 1, unit.shape[1])
    return found.index_add_(0, targets, unit.float())


def _without_answer(found: Tensor, label: int, targets: Tensor, classes: int) -> Tensor:
    """Left-out labels after a class is gone. What was taken for it is not solved again: it still counts as wrong."""
    return torch.where(found == label, (targets + 1) % classes, found - (found > label).long())


def _left_out_of_means(unit: Tensor, labels: Tensor, totals: Tensor, counts: Tensor) -> Tensor:
    """Scores (N, classes) by the nearest mean, as `nme_scores`; a photo does not count in the mean of its own class."""
    cosines = unit @ F.normalize(totals).t()
    others = totals[labels] - unit  # zero for the only photo of a class: then the cosine is 0
    alone = counts[labels] == 1
    own = (unit * F.normalize(others)).sum(1).masked_fill(alone, -1)
    cosines[torch.arange(len(unit)), labels] = own
    return 2 * cosines - 2
