"""A model as the page shows it: its classes, photos, similar classes, and the map of its proxies."""

from __future__ import annotations

import io
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from podnet.data.decode import decode, shrink
from podnet.data.photos import Photos
from podnet.errors import PodnetError
from podnet.model.forget import forget
from podnet.model.look import look
from podnet.model.measure import then_and_now
from podnet.model.model import Model, load_model
from podnet.model.undo import accept, can_undo, undo

NEIGHBOURS = 3
PREVIEW = 192  # half the shorter side of a photo that is sent back


class ModelView:
    """The model of a file, loaded again whenever the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model: Model | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._map: dict[str, Any] = {}
        self._lock = threading.Lock()  # of loading and of the network: one photo at a time

    def describe(self) -> dict[str, Any]:
        """Everything except pictures."""
        with self._lock:
            model = self._current()
            return {
                "settings": asdict(model.settings),
                "can_learn": model.can_learn,
                "can_undo": can_undo(self.path),
                "held_out": len(model.held_out_targets),
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
            raise PodnetError("the model was saved without exemplars.")
        known = 0 <= label <= int(memory.targets.max())
        own = (memory.targets == label).nonzero().flatten() if known else memory.targets[:0]
        if not 0 <= index < len(own):
            raise PodnetError(f"there is no exemplar {index} of class {label}.")
        source = memory.images.sources[int(own[index])]
        drawn = io.BytesIO()
        Image.fromarray(decode(source, size)).save(drawn, "JPEG", quality=88)
        return drawn.getvalue()

    def look(self, photo: bytes, label: int | None) -> tuple[dict[str, Any], bytes]:
        """Both inferences for a photo, where the network looked, and a small upright copy of the photo."""
        with self._lock:
            model = self._current()
            if label is not None and not 0 <= label < len(model.names):
                raise PodnetError(f"there is no class {label}; the model has {len(model.names)}.")
            seen = look(model, photo, label)
        answer = {
            "ranked": {name: [{"name": n, "confidence": p} for n, p in ranked] for name, ranked in seen.ranked.items()},
            "label": seen.label,
            "name": model.names[seen.label],
            "heat": None if seen.heat is None else [[round(v, 3) for v in row] for row in seen.heat.tolist()],
            "seen": seen.seen,
        }
        return answer, shrink(photo, PREVIEW)

    def undo(self) -> None:
        undo(self.path)

    def accept(self) -> None:
        accept(self.path)

    def forget(self, name: str) -> None:
        forget(self.path, [name], undoable=True)

    def _current(self) -> Model:
        if not self.path.exists():
            raise PodnetError(f"there is no model {self.path.name} yet; teach it two classes, and it will be made.")
        status = self.path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._model is None or stamp != self._stamp:
            self._model, self._stamp = load_model(self.path), stamp
            weights = self._model.learner.network.classifier.weights
            self._map = proxy_map(torch.cat(list(weights)).detach().cpu())
        return self._model


def _classes(model: Model) -> list[dict[str, Any]]:
    task_of = {name: task for task, entry in enumerate(model.history) for name in entry["new"]}
    memory = model.learner.memory
    kept = torch.zeros(0, dtype=torch.int64) if memory.targets is None else memory.targets
    counts = torch.bincount(kept, minlength=len(model.names)).tolist()
    near = nearest_classes(model.learner.means, model.names)
    described = []
    for label, record in enumerate(model.classes):
        then, now = then_and_now(model.history, record.name)
        described.append(
            {
                **asdict(record),
                "task": task_of.get(record.name, 0),
                "exemplars": counts[label],
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


def proxy_map(proxies: Tensor) -> dict[str, Any]:
    """Proxies (classes, K, D) in the plane of their two main directions: the unit vectors' principal components."""
    unit = F.normalize(proxies.flatten(0, 1).double())
    centred = unit - unit.mean(0)
    spread, directions = torch.linalg.eigh(centred.t() @ centred)  # ascending
    main = directions[:, [-1, -2]]
    signs = main.gather(0, main.abs().argmax(0, keepdim=True)).sign()  # otherwise each call might mirror it
    plane = centred @ (signs * main)
    shares = spread.flip(0) / spread.sum().clamp_min(1e-12)
    labels = torch.arange(len(proxies)).repeat_interleave(proxies.shape[1])
    return {
        "x": [round(v, 4) for v in plane[:, 0].tolist()],
        "y": [round(v, 4) for v in plane[:, 1].tolist()],
        "label": labels.tolist(),
        "shares": [round(v, 4) for v in shares[:2].tolist()],
    }
