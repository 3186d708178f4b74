"""How well a model does on photos it was not trained on, and how sure it may say it is."""

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

UNMEASURED = {"cnn": 1.0, "nme": 0.05}  # temperatures where no photo was held out
SURE_OF_LOSS = 5.0  # points of accuracy by which a class counts as partly forgotten
FEWEST = 20  # photos that a temperature can be fitted on
TEMPERATURES = torch.logspace(-2.5, 1.5, 81).tolist()


@dataclass(frozen=True)
class Measured:
    """The labels predicted, and accuracy in percent, of all classes and of each; None for a class without photos."""

    predicted: NDArray[np.int64]
    accuracy: float
    per_class: list[float | None]


def tables(scores: Scores) -> dict[str, Tensor]:
    """The scores (N, classes) of each inference that was made."""
    found = {inference: getattr(scores, inference) for inference in INFERENCES}
    return {inference: table for inference, table in found.items() if table is not None}


def confidences(scores: Tensor, temperature: float) -> Tensor:
    """Scores (N, classes) as probabilities."""
    return (scores / temperature).softmax(1)


def measure(scores: Scores, targets: Tensor, classes: int) -> dict[str, Measured]:
    """Of both inferences."""
    measured = {}
    for inference, table in tables(scores).items():
        predicted, labels = table.argmax(1).cpu().numpy(), targets.numpy()
        per_class = accuracy_per_class(predicted, labels, classes)
        measured[inference] = Measured(predicted, accuracy(predicted, labels), per_class)
    return measured


def fit_temperatures(scores: Scores, targets: Tensor) -> dict[str, float]:
    """For each inference the temperature under which photos that were held out are most likely."""
    found = dict(UNMEASURED)
    if len(targets) < FEWEST:
        return found
    for inference, table in tables(scores).items():
        losses = [float(F.cross_entropy(table.cpu().double() / t, targets)) for t in TEMPERATURES]
        found[inference] = TEMPERATURES[losses.index(min(losses))]
    return found


def best_inference(entry: Mapping[str, Any]) -> str:
    """The one that did better on the photos held out, by an entry of the history."""
    found = entry["accuracy"]
    return max(found, key=lambda inference: float(found[inference])) if found else "cnn"


def then_and_now(history: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Accuracy of a class when it was new and after the last call, by the better inference of now."""
    best = best_inference(history[-1])
    values = [entry["per_class"].get(best, {}).get(name) for entry in history]
    known = [value for value in values if value is not None]
    return (known[0], known[-1]) if known else (None, None)


def partly_forgotten(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[tuple[str, float, float]]:
    """Classes that do worse than after the call before, then and now, by the better inference of now, worst first."""
    best = best_inference(entry)
    now, then = entry["per_class"].get(best, {}), before["per_class"].get(best, {}) if before else {}
    both = [(name, value, now[name]) for name, value in then.items() if value is not None and now.get(name) is not None]
    return sorted((each for each in both if each[1] - each[2] > SURE_OF_LOSS), key=lambda each: each[2] - each[1])
