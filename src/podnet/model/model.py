"""The model file: weights, exemplars, class names, settings and history in one file. Loading it executes no code.

tensors     learner.*    the state of the learner: weights, class means, exemplars as small encoded photos
            held_out.*   photos that were never trained on, to measure with even if their folder is gone
metadata    format, settings, classes, history, temperatures, and the learner's own
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podnet.data.images import Images, to_tensors
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.errors import DamagedFileError, MissingPackageError, PodnetError, nearest, printable
from podnet.io.files import inode, locked
from podnet.io.tensors import load_tensors, save_tensors
from podnet.model.settings import Settings, Training, make_learner
from podnet.nets.building import require_room

FORMAT = 2  # of the files written; UPGRADES has the changes between formats
UNTRAINED = Training(epochs=1, batch_size=8)  # for a model that only predicts
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, PodnetError)


@dataclass(frozen=True)
class ClassRecord:
    """What is known about a class besides its weights."""

    name: str
    learned: str  # the day, as 2026-11-16
    photos: int  # photos it was trained on, in all calls


@dataclass
class Model:
    """A classifier with all it needs to predict, to be measured and to continue learning."""

    settings: Settings
    learner: Learner
    classes: list[ClassRecord] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry for each call of learn
    temperatures: dict[str, float] = field(default_factory=dict)  # what scores are divided by, for each inference
    held_out: Photos | None = None
    held_out_targets: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    held_out_digests: list[str] = field(default_factory=list)  # of the files they came from

    @property
    def names(self) -> list[str]:
        return [record.name for record in self.classes]

    @property
    def can_learn(self) -> bool:
        """False without exemplars: old classes would be forgotten."""
        return self.learner.memory.images is not None

    def label_of(self, name: str) -> int:
        if name not in self.names:
            raise PodnetError(f"the model knows no class '{printable(name)}'.{nearest(name, self.names)}")
        return self.names.index(name)

    def save(self, path: Path, exemplars: bool = True) -> None:
        """Write the file atomically. Without exemplars and held-out photos it is small and can only predict."""
        tensors, learned = self.learner.state()
        tensors = {
            f"learner.{name}": tensor for name, tensor in tensors.items() if exemplars or not name.startswith("memory.")
        }
        if exemplars and self.held_out is not None:
            tensors |= {f"held_out.{name}": tensor for name, tensor in to_tensors(self.held_out).items()}
            tensors["held_out.targets"] = self.held_out_targets
        meta = {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "classes": [asdict(record) for record in self.classes],
            "history": self.history,
            "temperatures": self.temperatures,
            "held_out_digests": self.held_out_digests if exemplars else [],
            "learner": learned,
        }
        save_tensors(path, tensors, meta)

    def forget(self, name: str) -> None:
        """Remove a class: its proxies, exemplars, held-out photos, and its name everywhere."""
        label = self.label_of(name)
        if len(self.classes) == 1:
            raise PodnetError(f"'{printable(name)}' is the only class of the model; remove the file instead.")
        self.learner.forget(label)
        del self.classes[label]
        if self.held_out is not None:
            kept = (self.held_out_targets != label).nonzero().flatten()
            self.held_out = self.held_out[kept].kept() if len(kept) else None
            targets = self.held_out_targets[kept]
            self.held_out_targets = targets - (targets > label).long()
            self.held_out_digests = [self.held_out_digests[i] for i in kept.tolist()]
        self.history = [_without(entry, name) for entry in self.history]


def checkpoint_file(path: Path) -> Path:
    """The checkpoint of an interrupted call of learn, beside the model."""
    return path.with_name(f".{path.name}.learning")


@contextmanager
def changing(path: Path, undoable: bool = False) -> Iterator[None]:
    """Lock the model: only one process at a time may change it.

    With `undoable` the previous file is kept until the change is accepted (`podnet.model.undo`) or another follows. The
    checkpoint of an interrupted call of learn is useless for a changed model and is removed.
    """
    lock, before = path.with_name(f".{path.name}.lock"), path.with_name(f".{path.name}.unchanged")
    with locked(lock, f"another process is changing {printable(path)}; wait for it."):
        try:
            before.unlink(missing_ok=True)  # left by a killed process
            if undoable and path.exists():
                _link(path, before)
            old = inode(path)
            yield
            if inode(path) != old:
                checkpoint_file(path).unlink(missing_ok=True)
            forget_before(path)
            if before.exists():
                os.replace(before, kept_before(path))
        finally:
            before.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _link(path: Path, other: Path) -> None:
    """Hard-link the file: it is only ever replaced, never modified in place."""
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        shutil.copyfile(path, other)


def kept_before(path: Path) -> Path:
    """The backup of the file before its last change, named after the hash of the current file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.with_name(f".{path.name}.before-{digest[:16]}")


def forget_before(path: Path) -> None:
    """Remove the backup of the file."""
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.before-"):
            file.unlink(missing_ok=True)


def load_model(path: Path, device: str = "cpu") -> Model:
    """Load a model. What the file claims is checked against its content before anything is built."""
    path = Path(path)
    if path.is_dir():
        raise PodnetError(f"{printable(path)} is a folder, not a model file.")
    tensors, meta = load_tensors(path)
    version = meta.get("format") if isinstance(meta, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise PodnetError(
            f"{printable(path)} was written by a newer podnet (format {version}); upgrade podnet to read it."
        )
    try:
        return _restored(tensors, meta, device)
    except MissingPackageError as error:
        raise MissingPackageError(f"{printable(path)}: {error}") from error
    except MALFORMED as error:
        raise DamagedFileError(
            f"{printable(path)} is damaged or not a model file ({' '.join(str(error).split())})."
        ) from error


def _restored(tensors: Mapping[str, Tensor], meta: Mapping[str, Any], device: str) -> Model:
    while meta["format"] != FORMAT:
        meta = UPGRADES[meta["format"]](meta)
    settings = _typed(Settings, meta["settings"])
    classes = [_typed(ClassRecord, record) for record in meta["classes"]]
    learned = meta["learner"]
    names = [record.name for record in classes]
    if names != learned["class_names"] or len(set(names)) != len(names) or not names:
        raise ValueError("its class names do not fit together")
    if not isinstance(meta["history"], list) or not meta["history"]:
        raise ValueError("it has no history")
    for entry in meta["history"]:
        _check_entry(entry)
    temperatures = {str(name): float(value) for name, value in meta["temperatures"].items()}
    if not all(0 < value < float("inf") for value in temperatures.values()):
        raise ValueError("a temperature is not above 0")
    if learned["progress"] is not None or learned["previous_sizes"] is not None:
        raise ValueError("it is in the middle of learning")
    require_room(settings.backbone, 3, tensors)
    learner = make_learner(settings, UNTRAINED, device)
    learner.restore(_below(tensors, "learner."), learned)
    shape = (len(names), learner.network.classifier.dim)
    if learner.network.classifier.classes != len(names) or learner.means is None or learner.means.shape != shape:
        raise ValueError("its weights or class means are of another number of classes")
    memory = learner.memory
    if memory.images is not None and memory.targets is not None:
        learner.memory = replace(memory, images=_photos(memory.images, memory.targets, settings, len(names)))
    model = Model(settings, learner, classes, meta["history"], temperatures)
    if held_out := _below(tensors, "held_out."):
        model.held_out_targets = held_out["targets"]
        model.held_out = _photos(Photos.from_state(held_out), model.held_out_targets, settings, len(names))
    model.held_out_digests = [str(digest) for digest in meta["held_out_digests"]]
    if len(model.held_out_digests) != len(model.held_out_targets):
        raise ValueError("its held-out photos and their digests do not fit together")
    return model


def _with_weights(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Format 2 records the initial weights of the backbone; before, they were always random."""
    return {**meta, "format": 2, "settings": {**meta["settings"], "weights": "none"}}


UPGRADES = {1: _with_weights}  # format -> upgrade to the next format


def _check_entry(entry: Mapping[str, Any]) -> None:
    """Check that an entry of the history has the fields that others read."""
    numbers = [entry["photos"], entry["seconds"], *entry["accuracy"].values()]
    for inference in entry["accuracy"]:
        numbers += [value for value in entry["per_class"][inference].values() if value is not None]
        numbers += [entry[key][inference] or 0 for key in ("old_accuracy", "new_accuracy")]
    words = [entry["date"], *entry["new"], *entry["refreshed"]]
    if not all(isinstance(value, int | float) for value in numbers) or not all(isinstance(w, str) for w in words):
        raise TypeError("an entry of its history is not as we write it")


def _photos(images: Images, targets: Tensor, settings: Settings, classes: int) -> Photos:
    """The photos of a file, at the size given by the settings."""
    fits = isinstance(images, Photos) and targets.dtype == torch.int64 and targets.shape == (len(images),)
    if not fits or (len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < classes):
        raise ValueError("its photos and their classes do not fit together")
    assert isinstance(images, Photos)
    return replace(images, size=settings.image_size, shrinks=True)


def _typed(kind: type, values: Mapping[str, Any]) -> Any:
    """A record whose values have the types of its fields."""
    for known in fields(kind):
        if known.name in values and type(values[known.name]).__name__ != known.type:
            raise TypeError(f"{known.name} is not {known.type}")
    return kind(**values)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _without(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entry of the history without a class."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, list):
            return [cleaned(item) for item in value if item != name]
        if isinstance(value, dict):
            return {key: cleaned(item) for key, item in value.items() if key != name}
        return value

    return dict(cleaned(dict(entry)))
