"""Predict the classes of photos, one answer after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from podnet.data.photos import Photos
from podnet.engine.extraction import Scores
from podnet.errors import DataError
from podnet.model.measure import UNMEASURED, confidences, highest, tables
from podnet.model.model import Model

TOGETHER = 64  # photos per batch of answers


@dataclass(frozen=True)
class Prediction:
    """The most likely classes of a photo, best first, each with a confidence from 0 to 1."""

    file: str
    ranked: list[tuple[str, float]]
    unknown: bool = False  # it looks like none of the classes


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
    reject: float = 0.0,
) -> Iterator[Prediction | Failure]:
    """An answer for each named file or content, in order.

    A photo less familiar than all but a share `reject` of the model's own is unknown.
    """
    for start in range(0, len(files), TOGETHER):
        part = files[start : start + TOGETHER]
        photos = Photos(tuple(source for _, source in part), model.settings.image_size, workers, "skip")
        yield from _answers(model, [name for name, _ in part], photos, inference, top, reject)


def _answers(
    model: Model, names: Sequence[str], photos: Photos, inference: str, top: int, reject: float
) -> Iterator[Prediction | Failure]:
    answers: dict[int, Prediction] = {}
    try:
        scores = model.learner.predict(photos)
        unknown = model.unknown(scores, reject).tolist()
        ranked = rank(model, scores, inference, top)
        rows = zip(scores.indices.tolist(), ranked, unknown, strict=True)
        answers = {i: Prediction(names[i], best, strange) for i, best, strange in rows}
    except DataError:
        if not {photos.name_of(i) for i in range(len(names))} <= photos.unreadable_names().keys():
            raise
        # None could be read: that is told photo by photo.
    reasons = photos.unreadable_names()
    for i, name in enumerate(names):
        yield answers.get(i) or Failure(name, reasons.get(photos.name_of(i), "it cannot be read"))


def rank(model: Model, scores: Scores, inference: str, top: int) -> list[list[tuple[str, float]]]:
    """The most likely classes and their confidences, for each photo."""
    table = chances(model, scores, model.familiarity(highest(scores)))[inference]
    best = table.topk(min(top, len(model.names)), dim=1)
    return [
        [(model.names[label], value) for label, value in zip(labels, values, strict=True)]
        for labels, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def chances(model: Model, scores: Scores, familiar: Tensor) -> dict[str, Tensor]:
    """The confidences (N, classes) of each inference.

    A single class has no rival: its confidence is the share of its own photos that look less familiar.
    """
    if len(model.names) == 1:
        return dict.fromkeys(tables(scores), model.familiarity.typical(familiar)[:, None])
    temperatures = UNMEASURED | model.temperatures
    return {name: confidences(table, temperatures[name]) for name, table in tables(scores).items()}
