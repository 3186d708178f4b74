"""Teach a model: plan what one call will learn, then learn it. Learning can be interrupted and resumed."""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podnet.data.collection import Collection, Photo, read_collection, refuse_lookalikes
from podnet.data.images import self_contained
from podnet.data.photos import Photos
from podnet.engine.training import Epoch, Iteration
from podnet.errors import BusyError, ConfigError, DamagedFileError, DataError, PodnetError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.metrics import accuracy
from podnet.model.measure import Measured, fit_temperatures, measure
from podnet.model.model import ClassRecord, Model, changing, checkpoint_file, load_model
from podnet.model.settings import Choice, Training, choose, make_learner
from podnet.nets.building import start_from
from podnet.randomness import generator
from podnet.scenario.tasks import Task

CHECKPOINT_SECONDS = 60
MOST_HELD_OUT = 25  # photos per class; they are stored in the model file
FEWEST_FOR_HELD_OUT = 5  # with fewer photos of a class, none is held out


@dataclass(frozen=True)
class Plan:
    """What one call learns."""

    new: tuple[str, ...]  # classes, in their future order
    refreshed: tuple[str, ...]  # known classes that get more photos
    ignored: tuple[str, ...]  # known classes whose photos are not used
    training: tuple[Photo, ...]
    held_out: tuple[Photo, ...]

    def digest(self, choice: Choice, model: Path) -> str:
        """A fingerprint of the call: an interrupted one with the same can be resumed."""
        photos = [(photo.digest, photo.label) for photo in (*self.training, *self.held_out)]
        before = hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else ""
        facts = [asdict(choice.settings), asdict(choice.training), self.new, self.refreshed, photos, before]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass(frozen=True)
class Resumed:
    """An interrupted call continues."""

    phase: int
    epoch: int


@dataclass(frozen=True)
class NotResumed:
    """An interrupted call had other photos or settings; its checkpoint will be replaced."""


@dataclass(frozen=True)
class Learned:
    """The classes are learned and measured, the file is written next; the history entry has the accuracies."""

    entry: dict[str, Any]
    before: dict[str, Any] | None  # the entry before it


Record = Iteration | Epoch | Resumed | NotResumed | Learned


@dataclass(frozen=True)
class Lesson:
    """Everything about one call of learn."""

    model: Model | None  # before the call
    collection: Collection
    todo: Plan
    choice: Choice


def prepare(path: Path, photos: Path, given: Mapping[str, Any], include_known: bool, device: str) -> Lesson:
    """Read the model and the photos and decide what is learned, and how; `given` settings have priority."""
    model = load_model(path, device) if path.exists() else None
    collection = read_collection(photos)
    todo = plan(collection, model, given.get("held_out", Training.held_out), include_known)
    known = model.settings if model else None
    choice = choose(Collection(todo.training), given, known, on_gpu=device.startswith("cuda"))
    return Lesson(model, collection, todo, choice)


def plan(collection: Collection, model: Model | None, share: float, include_known: bool) -> Plan:
    """Which classes are new, and which photos are held out; deterministic."""
    if not 0 <= share <= 0.5:
        raise ConfigError(f"held_out is {share}; give a share from 0 to 0.5.")
    known = dict.fromkeys(model.names if model else ())
    counts = collection.counts
    refuse_lookalikes(list(counts), list(known))
    new = tuple(label for label in counts if label not in known)
    old = tuple(label for label in known if label in counts)
    refreshed = old if include_known else ()
    if model is None and len(new) < 2:
        raise DataError(f"a new model needs photos of at least 2 classes; there are those of {len(new)} ({new[0]!r}).")
    if not new and not refreshed:
        raise DataError("the model knows all classes of these photos; --include-known refreshes them with new photos.")
    if model is not None and not model.can_learn:
        raise PodnetError("the model was saved without exemplars; it can predict, but it cannot go on learning.")
    training, held_out = [], []
    measured_with = set(model.held_out_digests) if model else set()  # never train on these
    usable: dict[str, list[Photo]] = {label: [] for label in counts}
    for photo in collection.photos:
        if photo.digest not in measured_with:
            usable[photo.label].append(photo)
    for label in (*refreshed, *new):
        parts = split(usable[label], share)
        training += parts[0]
        held_out += parts[1]
    trained = {photo.label for photo in training}
    refreshed = tuple(label for label in refreshed if label in trained)
    if not trained.issuperset(new) or not trained:
        raise DataError("the model measures itself with these photos, held out when it learned them; add other photos.")
    return Plan(new, refreshed, () if include_known else old, tuple(training), tuple(held_out))


def split(photos: Sequence[Photo], share: float) -> tuple[list[Photo], list[Photo]]:
    """The photos of one class to train on, and those held out; deterministic."""
    if len(photos) < FEWEST_FOR_HELD_OUT:
        return list(photos), []
    count = min(MOST_HELD_OUT, round(share * len(photos)))
    order = torch.randperm(len(photos), generator=generator(0, "held out", photos[0].label)).tolist()
    return [photos[i] for i in sorted(order[count:])], [photos[i] for i in sorted(order[:count])]


def teach(
    path: Path, lesson: Lesson, device: str, workers: int, exemplars: bool = True, undoable: bool = False
) -> Iterator[Record]:
    """Learn what is planned, then replace the model file. After an interruption the same call continues."""
    with changing(path, undoable):
        now = load_model(path) if path.exists() else None
        if (now and now.history) != (lesson.model and lesson.model.history):
            raise BusyError(f"{path} was changed by another process in the meantime; give the command again.")
        taught = _with_training(lesson.model, lesson.choice, device)
        yield from _teach(path, taught, lesson.todo, lesson.choice, workers)
        taught.save(path, exemplars)


def _teach(path: Path, taught: Model, todo: Plan, choice: Choice, workers: int) -> Iterator[Record]:
    began = time.monotonic()
    learner = taught.learner
    task = _task(taught, todo, choice, workers)
    digest = todo.digest(choice, path)
    saved = _restored(checkpoint_file(path), digest)
    if saved is not None:
        learner.restore(*saved)
        assert learner.progress is not None
        yield Resumed(learner.progress.phase, learner.progress.epoch)
    elif interrupted(path):
        yield NotResumed()
    else:
        checkpoint_file(path).unlink(missing_ok=True)
    written = time.monotonic()
    for record in learner.learn(task):
        if isinstance(record, Epoch) and time.monotonic() - written >= CHECKPOINT_SECONDS:
            tensors, meta = learner.state()
            save_tensors(checkpoint_file(path), tensors, {"digest": digest, "learner": meta})
            written = time.monotonic()
        yield record
    before = taught.history[-1] if taught.history else None
    entry = _finish(taught, todo, choice, workers)
    entry["seconds"] = round(time.monotonic() - began, 1)
    taught.history.append(entry)
    yield Learned(entry, before)


def interrupted(path: Path) -> bool:
    """Whether there is an interrupted call to continue: its checkpoint is newer than the model."""
    checkpoint = checkpoint_file(path)
    if not checkpoint.exists():
        return False
    return not path.exists() or checkpoint.stat().st_mtime_ns >= path.stat().st_mtime_ns


def _with_training(model: Model | None, choice: Choice, device: str) -> Model:
    """The model, or a new one, whose learner trains as chosen."""
    learner = make_learner(choice.settings, choice.training, device)
    if model is None:
        start_from(learner.network.backbone, learner.method.backbone, choice.weights, choice.settings.seed)
        return Model(choice.settings, learner)
    learner.restore(*model.learner.state())
    return replace(model, learner=learner, classes=list(model.classes), history=list(model.history))


def _task(model: Model, todo: Plan, choice: Choice, workers: int) -> Task:
    known = model.names
    label_of = {name: label for label, name in enumerate((*known, *todo.new))}
    images = _photos(todo.training, choice, workers)
    targets = torch.tensor([label_of[photo.label] for photo in todo.training])
    refreshed = tuple(sorted(label_of[name] for name in todo.refreshed))
    nothing = images[torch.zeros(0, dtype=torch.int64)]
    return Task(
        len(model.history), len(known), len(todo.new), todo.new, images, targets, nothing, targets[:0], refreshed
    )


def _photos(photos: tuple[Photo, ...], choice: Choice, workers: int) -> Photos:
    settings = choice.settings
    files = tuple(photo.path for photo in photos)
    return Photos(files, settings.image_size, workers, shrinks=True, least_area=settings.least_area)


def _restored(file: Path, digest: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The state of an interrupted call with the same digest, if there is one."""
    if not file.exists():
        return None
    try:
        tensors, meta = load_tensors(file)
    except DamagedFileError:
        return None
    return (tensors, meta["learner"]) if meta.get("digest") == digest else None


def _finish(model: Model, todo: Plan, choice: Choice, workers: int) -> dict[str, Any]:
    """Update the model's records; returns the new history entry."""
    today = datetime.date.today().isoformat()
    counts = Collection(todo.training).counts
    old = len(model.classes)
    model.classes = [replace(record, photos=record.photos + counts.get(record.name, 0)) for record in model.classes]
    model.classes += [ClassRecord(name, today, counts[name]) for name in todo.new]
    if todo.held_out:
        _hold_out(model, todo, choice, workers)
    entry: dict[str, Any] = {
        "date": today,
        "new": list(todo.new),
        "refreshed": list(todo.refreshed),
        "photos": len(todo.training),
        "held_out": len(model.held_out_targets),
        "training": asdict(choice.training),
        "accuracy": {},
        "old_accuracy": {},
        "new_accuracy": {},
        "per_class": {},
    }
    if model.held_out is not None:
        scores = model.learner.predict(replace(model.held_out, workers=workers))
        model.temperatures = fit_temperatures(scores, model.held_out_targets)
        for inference, measured in measure(scores, model.held_out_targets, len(model.classes)).items():
            _note(entry, inference, measured, model, old)
    return entry


def _hold_out(model: Model, todo: Plan, choice: Choice, workers: int) -> None:
    """Add the newly held-out photos to the earlier ones."""
    label_of = {name: label for label, name in enumerate(model.names)}
    fresh = _photos(todo.held_out, choice, workers)
    both = model.held_out.followed_by(fresh) if model.held_out is not None else fresh
    kept = self_contained(both)
    assert isinstance(kept, Photos)
    model.held_out = kept
    labels = torch.tensor([label_of[photo.label] for photo in todo.held_out])
    model.held_out_targets = torch.cat([model.held_out_targets, labels])
    model.held_out_digests = [*model.held_out_digests, *(photo.digest for photo in todo.held_out)]


def _note(entry: dict[str, Any], inference: str, measured: Measured, model: Model, old: int) -> None:
    entry["accuracy"][inference] = measured.accuracy
    entry["per_class"][inference] = dict(zip(model.names, measured.per_class, strict=True))
    targets = model.held_out_targets.numpy()
    for key, own in (("old_accuracy", targets < old), ("new_accuracy", targets >= old)):
        entry[key][inference] = accuracy(measured.predicted[own], targets[own]) if own.any() else None
