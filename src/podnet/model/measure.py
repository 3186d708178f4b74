"""How good a model is, how sure it is of an answer, and whether a photo is of none of its classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podnet.engine.extraction import Scores
from podnet.errors import counted
from podnet.losses import best_temperature
from podnet.metrics import INFERENCES, accuracy, accuracy_per_class

UNMEASURED = {"cnn": 1.0, "nme": 0.05}  # temperatures if no photo was held out
TOO_FEW = "a class needs at least 2 photos"
TOO_FEW_HELD_OUT = "no photos were held out, which takes at least 5 photos per class"
SURE_OF_LOSS = 5.0  # a class that loses more points of accuracy counts as partly forgotten


@dataclass(frozen=True)
class Measured:
    """The predicted labels, and accuracy in percent, of all classes and of each; None for a class without photos."""

    predicted: NDArray[np.int64]
    accuracy: float
    per_class: list[float | None]

    @classmethod
    def of(cls, predicted: Tensor, targets: Tensor, classes: int) -> Measured:
        found, labels = predicted.cpu().numpy(), targets.numpy()
        return cls(found, accuracy(found, labels), accuracy_per_class(found, labels, classes))


def judged(targets: Tensor) -> Tensor:
    """Which photos (N,) a model of all the others can be measured with: not the only photo of a class."""
    return torch.bincount(targets)[targets] > 1


def tables(scores: Scores) -> dict[str, Tensor]:
    """The scores (N, classes) of each available inference."""
    found = {inference: getattr(scores, inference) for inference in INFERENCES}
    return {inference: table for inference, table in found.items() if table is not None}


def confidences(scores: Tensor, temperature: float) -> Tensor:
    """Scores (N, classes) as probabilities."""
    return (scores / temperature).softmax(1)


def measure(scores: Scores, targets: Tensor, classes: int) -> dict[str, Measured]:
    return {name: Measured.of(table.argmax(1), targets, classes) for name, table in tables(scores).items()}


def fit_temperatures(scores: Scores, targets: Tensor) -> dict[str, float]:
    """For each inference, the temperature that maximises the likelihood of held-out photos."""
    found = {name: best_temperature(table, targets) for name, table in tables(scores).items()}
    return UNMEASURED | {name: value for name, value in found.items() if value is not None}


def highest(scores: Scores) -> Tensor:
    """The highest score of each inference for each photo, (N, 2)."""
    return torch.stack([table.amax(1).float().cpu() for table in tables(scores).values()], dim=1)


class Familiarity:
    """Whether a photo looks like those the model knows, from the highest scores of photos it was not fitted to.

    Both inferences say it in their own unit, so each is measured in its own standard deviations, and they are added.
    """

    def __init__(self, known: Tensor) -> None:
        spread = known.std(0) if len(known) > 1 else torch.zeros(known.shape[1])
        self.centre = known.mean(0) if len(known) else torch.zeros(known.shape[1])
        self.slope = torch.where(spread > 1e-6, 1 / spread.clamp_min(1e-6), 0.0)  # a constant score says nothing
        self._known = self(known).sort().values

    def __call__(self, highest: Tensor) -> Tensor:
        """How familiar photos are, from their highest scores (N, 2)."""
        return ((highest - self.centre) * self.slope).sum(1)

    def threshold(self, rate: float) -> float:
        """Below it a photo is called unknown; that share of photos of known classes is, too."""
        if not len(self._known) or rate <= 0:
            return -math.inf
        return float(torch.quantile(self._known, min(rate, 1.0)))

    def typical(self, familiar: Tensor) -> Tensor:
        """The share of known photos that are less familiar, from 0 to 1."""
        return (self._known < familiar[:, None]).sum(1) / max(1, len(self._known))


def interval(percent: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy in percent, measured on `count` photos."""
    z, share = 1.96, percent / 100
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return 100 * (centre - half), 100 * (centre + half)


def accuracy_words(entry: Mapping[str, Any], trained: bool, keep: str) -> str:
    """The accuracy of an entry of the history by the better inference, its interval, and on which photos."""
    if not entry["accuracy"]:
        return f"accuracy not measured: {TOO_FEW_HELD_OUT if trained else TOO_FEW}"
    value, count = entry["accuracy"][best_inference(entry)], entry["measured"]
    low, high = interval(value, count)
    if trained:
        how = " that were held out"
    elif keep == "sums":
        how = ", each judged in its own lesson by a model that has not seen it (sums cannot measure old photos again)"
    else:
        how = ", each judged by a model that has not seen it"
    return f"accuracy {value:.1f} % (95 % interval {low:.1f} to {high:.1f}) on {counted(count, 'photo')}{how}"


def best_inference(entry: Mapping[str, Any]) -> str:
    """The inference that did better, by an entry of the history."""
    found = entry["accuracy"]
    return max(found, key=lambda inference: float(found[inference])) if found else "cnn"


def then_and_now(history: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Accuracy of a class when it was new and after the last call, by the currently better inference."""
    best = best_inference(history[-1])
    values = [entry["per_class"].get(best, {}).get(name) for entry in history]
    known = [value for value in values if value is not None]
    return (known[0], known[-1]) if known else (None, None)


def worse_on_old_classes(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Accuracy on the old classes then and now, if it fell by more than chance explains."""
    best = best_inference(entry)
    then, now = (before or {}).get("accuracy", {}).get(best), entry["old_accuracy"].get(best)
    if before is None or then is None or now is None or not before["measured"]:
        return None
    return (then, now) if now < interval(then, before["measured"])[0] else None


def partly_forgotten(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[tuple[str, float, float]]:
    """Classes worse than after the previous call: then and now, by the currently better inference, worst first."""
    best = best_inference(entry)
    now, then = entry["per_class"].get(best, {}), before["per_class"].get(best, {}) if before else {}
    both = [(name, value, now[name]) for name, value in then.items() if value is not None and now.get(name) is not None]
    return sorted((each for each in both if each[1] - each[2] > SURE_OF_LOSS), key=lambda each: each[2] - each[1])
