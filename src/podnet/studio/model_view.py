"""A model as the page shows it: its classes, photos, similar classes, and the map of its photos or proxies."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.decode import shrink
from podnet.data.photos import Photos
from podnet.errors import PodnetError, counted
from podnet.io.files import stamp
from podnet.model.changing import can_undo
from podnet.model.loading import load_model
from podnet.model.look import look
from podnet.model.measure import accuracy_words, best_inference, interval, then_and_now
from podnet.model.model import Model, kept_words
from podnet.studio.draft import small_jpeg

NEIGHBOURS = 3
MOST_POINTS = 3000  # of the map
MOST_FITTED = 200  # photos that decide its directions
PREVIEW = 192  # half the shorter side of a photo that is sent back


class ModelView:
    """The model of a file, loaded again whenever the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model: Model | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._map: dict[str, Any] = {}  # made when it is asked for
        self._lock = threading.Lock()  # of loading and of the network: one photo at a time

    def describe(self) -> dict[str, Any]:
        with self._lock:
            model = self._current()
            settings, last = model.settings, model.history[-1]
            self._map = self._map or map_of(model)
            return {
                "settings": asdict(settings),
                "can_learn": model.can_learn,
                "can_undo": can_undo(self.path),
                "best": best_inference(last),
                "interval": interval_of(last),
                "measured": accuracy_words(last, settings.trained, settings.keep),
                "kept": model.kept_words(),
                "bytes": self.path.stat().st_size,
                "history": model.history,
                "classes": _classes(model),
                "map": self._map,
            }

    def thumbnail(self, label: int, index: int, size: int) -> bytes:
        """An exemplar of a class, as it was chosen first, second ..., decoded and drawn anew."""
        with self._lock:
            memory = self._current().learner.memory
        if not isinstance(memory.images, Photos) or memory.targets is None:
            raise PodnetError("the model has no photos.")
        own = [i for i, target in enumerate(memory.targets.tolist()) if target == label]
        if not 0 <= index < len(own):
            raise PodnetError(f"there is no exemplar {index} of class {label}.")
        return small_jpeg(memory.images.sources[own[index]], size, quality=88)

    def look(self, photo: bytes, label: int | None) -> tuple[dict[str, Any], bytes]:
        """Both inferences for a photo, where the network looked, and a small upright copy of the photo."""
        with self._lock:
            model = self._current()
            if label is not None and not 0 <= label < len(model.names):
                raise PodnetError(f"there is no class {label}; the model has {counted(len(model.names), 'class')}.")
            seen = look(model, photo, label)
        answer = {
            "ranked": {name: [{"name": n, "confidence": p} for n, p in ranked] for name, ranked in seen.ranked.items()},
            "best": best_inference(model.history[-1]),
            "unknown": seen.unknown,
            "label": seen.label,
            "name": model.names[seen.label],
            "heat": None if seen.heat is None else [[round(v, 3) for v in row] for row in seen.heat.tolist()],
            "seen": seen.seen,
        }
        return answer, shrink(photo, PREVIEW)

    def _current(self) -> Model:
        if not self.path.exists():
            raise PodnetError(f"there is no model {self.path.name} yet; teach two classes to create it.")
        now = stamp(self.path)
        if self._model is None or now != self._stamp:
            self._model, self._stamp, self._map = load_model(self.path), now, {}
        return self._model


def interval_of(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval of an entry's accuracy, by its better inference; None if nothing was measured."""
    accuracy = entry["accuracy"].get(best_inference(entry))
    return None if accuracy is None or not entry["measured"] else interval(accuracy, entry["measured"])


def _classes(model: Model) -> list[dict[str, Any]]:
    task_of = {name: task for task, entry in enumerate(model.history) for name in entry["new"]}
    targets = model.learner.kept.get("targets", torch.zeros(0, dtype=torch.int64))
    features = torch.bincount(targets, minlength=len(model.names)).tolist()
    exemplars = model.exemplar_counts()
    near = nearest_classes(model.learner.means, model.names)
    described = []
    for label, record in enumerate(model.classes):
        then, now = then_and_now(model.history, record.name)
        described.append(
            {
                **asdict(record),
                "task": task_of.get(record.name, 0),
                "exemplars": exemplars[label],
                "kept": kept_words(model.settings.keep, features[label], exemplars[label]),
                "then": then,
                "now": now,
                "nearest": near[label],
            }
        )
    return described


def nearest_classes(means: Tensor | None, names: list[str]) -> list[list[dict[str, Any]]]:
    """For each class the others whose mean exemplars are most similar, by their cosine."""
    if means is None or len(names) < 2:
        return [[] for _ in names]
    unit = F.normalize(means.detach().cpu())
    cosines = (unit @ unit.t()).fill_diagonal_(-2)
    best = cosines.topk(min(NEIGHBOURS, len(names) - 1))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        [{"name": names[i], "cosine": round(c, 3)} for i, c in zip(labels, values, strict=True)]
        for labels, values in pairs
    ]


def map_of(model: Model) -> dict[str, Any]:
    """The plane in which its classes differ most, with its photos; or that of its proxies; see `plane`."""
    learner = model.learner
    assert learner.means is not None
    means, kept = learner.means.detach().cpu(), learner.kept
    if model.settings.trained:
        proxies = torch.cat(list(learner.network.classifier.weights)).detach().cpu()
        labels = torch.arange(len(proxies)).repeat_interleave(proxies.shape[1])
        unit = F.normalize(proxies, dim=2)
        return {"of": "proxies", **plane(unit.flatten(0, 1), labels, unit.mean(1), unit.flatten(0, 1))}
    if "features" in kept:
        features, targets = kept["features"].float(), kept["targets"]
        totals = torch.zeros_like(means).index_add_(0, targets, features)
        middles = totals / torch.bincount(targets)[:, None]
        some = slice(None, None, math.ceil(len(targets) / MOST_POINTS))
        points = features[some]
        # Two classes differ in one direction only.
        basis = middles if len(middles) > 2 else points[:: math.ceil(len(points) / MOST_FITTED)]
        return {"of": "photos", **plane(points, targets[some], middles, basis)}
    return {"of": "means", **plane(means, torch.arange(len(means)), means, means)}


def plane(points: Tensor, labels: Tensor, middles: Tensor, basis: Tensor) -> dict[str, Any]:
    """Points (N, D), and the middle of each class, along the two principal components of the rows of `basis`.

    `shares` is how much of the variance of the basis each shows.
    """
    centre = basis.double().mean(0)
    _, spread, directions = torch.linalg.svd(basis.double() - centre, full_matrices=False)
    main = F.pad(directions[:2], (0, 0, 0, max(0, 2 - len(directions)))).t()
    main = main * main.gather(0, main.abs().argmax(0, keepdim=True)).sign()  # otherwise each call might mirror it
    variance = F.pad(spread.square(), (0, 1))
    return {
        "points": _rounded((points.double() - centre) @ main),
        "labels": labels.tolist(),
        "middles": _rounded((middles.double() - centre) @ main),
        "shares": _rounded(variance[:2] / variance.sum().clamp_min(1e-12)),
    }


def _rounded(values: Tensor) -> Any:
    return (values * 1e4).round().div(1e4).tolist()
