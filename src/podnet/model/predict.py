"""Predict the classes of photos, one answer after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from podnet.data.photos import Photos
from podnet.errors import DataError
from podnet.model.measure import UNMEASURED, confidences, tables
from podnet.model.model import Model

TOGETHER = 64  # photos per batch of answers


@dataclass(frozen=True)
class Prediction:
    """The most likely classes of a photo, best first, each with a confidence from 0 to 1."""

    file: str
    ranked: list[tuple[str, float]]


@dataclass(frozen=True)
class Failure:
    """A photo that could not be read."""

    file: str
    why: str


def predict(
    model: Model,
    files: Sequence[tuple[str, Path | bytes]],
    inference: str,
    top: int = 5,
    workers: int = 0,
) -> Iterator[Prediction | Failure]:
    """An answer for each named file or content, in order."""
    for start in range(0, len(files), TOGETHER):
        part = files[start : start + TOGETHER]
        sources = tuple(source for _, source in part)
        yield from _answers(model, [name for name, _ in part], sources, inference, top, workers)


def _answers(
    model: Model, names: Sequence[str], sources: tuple[Path | bytes, ...], inference: str, top: int, workers: int
) -> Iterator[Prediction | Failure]:
    photos = Photos(sources, model.settings.image_size, workers, "skip")
    rows: dict[int, int] = {}
    try:
        scores = model.learner.predict(photos)
    except DataError:  # none could be read
        pass
    else:
        ranked = rank(model, tables(scores)[inference], inference, top)
        rows = {index: row for row, index in enumerate(scores.indices.tolist())}
    reasons = photos.unreadable_names()
    for i, (name, source) in enumerate(zip(names, sources, strict=True)):
        if i in rows:
            yield Prediction(name, ranked[rows[i]])
        else:
            yield Failure(name, reasons.get(str(source), "it cannot be read"))


def rank(model: Model, scores: Tensor, inference: str, top: int) -> list[list[tuple[str, float]]]:
    """The most likely classes and their confidences, for each row of scores (N, classes)."""
    chances = confidences(scores, model.temperatures.get(inference, UNMEASURED[inference]))
    best = chances.topk(min(top, len(model.names)), dim=1)
    return [
        [(model.names[label], value) for label, value in zip(labels, values, strict=True)]
        for labels, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
