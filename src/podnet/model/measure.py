"""Accuracy on held-out photos, and calibration of confidences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from podnet.engine.extraction import Scores
from podnet.metrics import INFERENCES, accuracy, accuracy_per_class

UNMEASURED = {"cnn": 1.0, "nme": 0.05}  # temperatures if no photo was held out
SURE_OF_LOSS = 5.0  # a class that loses more points of accuracy counts as partly forgotten
FEWEST = 20  # photos needed to fit a temperature
TEMPERATURES = torch.logspace(-2.5, 1.5, 81).tolist()


@dataclass(frozen=True)
class Measured:
    """The predicted labels, and accuracy in percent, of all classes and of each; None for a class without photos."""

    predicted: NDArray[np.int64]
    accuracy: float
    per_class: list[float | None]


def tables(scores: Scores) -> dict[str, Tensor]:
    """The scores (N, classes) of each available inference."""
    found = {inference: getattr(scores, inference) for inference in INFERENCES}
    return {inference: table for inference, table in found.items() if table is not None}


def confidences(scores: Tensor, temperature: float) -> Tensor:
    """Scores (N, classes) as probabilities."""
    return (scores / temperature).softmax(1)


def measure(scores: Scores, targets: Tensor, classes: int) -> dict[str, Measured]:
    """Measure both inferences."""
    measured = {}
    for inference, table in tables(scores).items():
        predicted, labels = table.argmax(1).cpu().numpy(), targets.numpy()
        per_class = accuracy_per_class(predicted, labels, classes)
        measured[inference] = Measured(predicted, accuracy(predicted, labels), per_class)
    return measured


def fit_temperatures(scores: Scores, targets: Tensor) -> dict[str, float]:
    """For each inference, the temperature that maximises the likelihood of held-out photos."""
    found = dict(UNMEASURED)
    if len(targets) < FEWEST:
        return found
    for inference, table in tables(scores).items():
        losses = [float(F.cross_entropy(table.cpu().double() / t, targets)) for t in TEMPERATURES]
        found[inference] = TEMPERATURES[losses.index(min(losses))]
    return found


def best_inference(entry: Mapping[str, Any]) -> str:
    """The inference that did better on held-out photos, by an entry of the history."""
    found = entry["accuracy"]
    return max(found, key=lambda inference: float(found[inference])) if found else "cnn"


def then_and_now(history: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Accuracy of a class when it was new and after the last call, by the currently better inference."""
    best = best_inference(history[-1])
    values = [entry["per_class"].get(best, {}).get(name) for entry in history]
    known = [value for value in values if value is not None]
    return (known[0], known[-1]) if known else (None, None)


def partly_forgotten(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[tuple[str, float, float]]:
    """Classes worse than after the previous call: then and now, by the currently better inference, worst first."""
    best = best_inference(entry)
    now, then = entry["per_class"].get(best, {}), before["per_class"].get(best, {}) if before else {}
    both = [(name, value, now[name]) for name, value in then.items() if value is not None and now.get(name) is not None]
    return sorted((each for each in both if each[1] - each[2] > SURE_OF_LOSS), key=lambda each: each[2] - each[1])
