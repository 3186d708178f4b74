"""Teach a model what was planned. Training can be interrupted and resumed."""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podnet.data.collection import Collection, Photo
from podnet.data.decode import shrink
from podnet.data.images import self_contained
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.engine.saving import checkpointed
from podnet.engine.training import Epoch, Iteration
from podnet.errors import BusyError, DamagedFileError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.metrics import INFERENCES, accuracy
from podnet.model.changing import changing, checkpoint_file, interrupted
from podnet.model.loading import load_model
from podnet.model.measure import Measured, fit_temperatures, highest, judged, measure
from podnet.model.model import ClassRecord, Model
from podnet.model.planning import Lesson, trained
from podnet.model.settings import Settings, make_learner, new_learner
from podnet.model.trial import Trial, try_training
from podnet.scenario.tasks import Task

CHECKPOINT_SECONDS = 60


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


Record = Iteration | Epoch | Resumed | NotResumed | Trial | Learned


def teach(
    path: Path, lesson: Lesson, device: str, workers: int, exemplars: bool = True, undoable: bool = False
) -> Iterator[Record]:
    """Learn what is planned, then replace the model file. After an interruption the same call continues."""
    with changing(path, undoable):
        now = load_model(path) if path.exists() else None
        if (now and now.history) != (lesson.model and lesson.model.history):
            raise BusyError(f"{path} was changed by another process in the meantime; run the command again.")
        for record in taught(lesson, device, workers, path):
            if isinstance(record, Model):
                record.save(path, exemplars)
            else:
                yield record


def taught(lesson: Lesson, device: str, workers: int, path: Path | None = None) -> Iterator[Record | Model]:
    """Learn what is planned; the last of what it yields is the model.

    Its network stays as it is, or is trained if that is asked for or better in a trial.
    Beside the model file `path`, if there is one, a checkpoint is kept for a call that continues.
    """
    if lesson.choice.trial and path and _restored(path, trained(lesson).digest(path)):
        lesson = trained(lesson)  # the interrupted call had tried it
    model = yield from _learned(lesson, device, workers, path)
    if lesson.choice.trial:
        verdict = yield from try_training(model.learner, _task(lesson, workers), trained(lesson).choice, device)
        yield verdict
        if verdict.wins:
            model = yield from _learned(trained(lesson), device, workers, path)
    yield model


def _learned(lesson: Lesson, device: str, workers: int, path: Path | None) -> Generator[Record, None, Model]:
    choice = lesson.choice
    if lesson.model is None:
        model = Model(choice.settings, new_learner(choice, device))
    else:  # which stays as it is
        model = replace(lesson.model, learner=make_learner(choice.settings, choice.training, device))
        model.learner.restore(*lesson.model.learner.state())
    records = _learning(model, lesson, workers)
    yield from records if path is None else _resumable(records, model.learner, path, lesson.digest(path))
    return model


def _resumable(records: Iterator[Record], learner: Learner, path: Path, digest: str) -> Iterator[Record]:
    """The same records, with checkpoints; from the last checkpoint of an interrupted call with the same digest."""
    if saved := _restored(path, digest):
        learner.restore(*saved)
        assert learner.progress is not None
        yield Resumed(learner.progress.phase, learner.progress.epoch)
    elif interrupted(path):
        yield NotResumed()
    else:
        checkpoint_file(path).unlink(missing_ok=True)

    def save() -> None:
        tensors, meta = learner.state()
        save_tensors(checkpoint_file(path), tensors, {"digest": digest, "learner": meta})
        if path.exists():  # whoever may not read the model may not read its photos here
            shutil.copymode(path, checkpoint_file(path))

    yield from checkpointed(records, save, CHECKPOINT_SECONDS)


def _restored(path: Path, digest: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The state of an interrupted call with the same digest, if there is one."""
    if not checkpoint_file(path).exists():
        return None
    try:
        tensors, meta = load_tensors(checkpoint_file(path))
    except DamagedFileError:
        return None
    return (tensors, meta["learner"]) if meta.get("digest") == digest else None


def _learning(model: Model, lesson: Lesson, workers: int) -> Iterator[Record]:
    """Learn what is planned; the model is complete after the last record, Learned."""
    began = time.monotonic()
    yield from model.learner.learn(_task(lesson, workers))
    before = model.history[-1] if model.history else None
    entry = _recorded(model, lesson, workers)
    entry["seconds"] = round(time.monotonic() - began, 1)
    for earlier in model.history[:-1]:  # of each lesson but the last two, only the accuracy of its own classes is asked
        own = {*earlier["new"], *earlier["refreshed"]}
        shares = earlier["per_class"].items()
        earlier["per_class"] = {name: {each: found[each] for each in found if each in own} for name, found in shares}
    model.history = [*model.history, entry]
    yield Learned(entry, before)


def _task(lesson: Lesson, workers: int) -> Task:
    model, todo = lesson.model, lesson.todo
    known, lessons = (model.names, len(model.history)) if model else ([], 0)
    label_of = {name: label for label, name in enumerate((*known, *todo.new))}
    images = _photos(todo.training, lesson.choice.settings, workers)
    targets = torch.tensor([label_of[photo.label] for photo in todo.training])
    refreshed = tuple(sorted(label_of[name] for name in todo.refreshed))
    nothing = images[torch.zeros(0, dtype=torch.int64)]
    return Task(lessons, len(known), len(todo.new), todo.new, images, targets, nothing, targets[:0], refreshed)


def _photos(photos: tuple[Photo, ...], settings: Settings, workers: int) -> Photos:
    """The files; if photos are kept, those in memory as the small copies that can be kept."""
    small = settings.keep == "photos"
    files = tuple(
        shrink(photo.source, settings.image_size) if small and isinstance(photo.source, bytes) else photo.source
        for photo in photos
    )
    return Photos(files, settings.image_size, workers, shrinks=True, least_area=settings.least_area)


def _recorded(model: Model, lesson: Lesson, workers: int) -> dict[str, Any]:
    """Update the model's records; returns the new history entry."""
    todo, today = lesson.todo, datetime.date.today().isoformat()
    counts = Collection(todo.training).counts
    model.classes = [replace(record, photos=record.photos + counts.get(record.name, 0)) for record in model.classes]
    model.classes += [ClassRecord(name, today, counts[name]) for name in todo.new]
    if model.settings.trained:  # the network may be trained on a photo again
        fresh = {name: [photo.digest for photo in todo.training if photo.label == name] for name in counts}
        merged = {name: sorted({*own, *model.trained_on.get(name, [])}) for name, own in fresh.items()}
        model.trained_on = model.trained_on | merged
    else:  # here each counts once
        model.digests = [*model.digests, *(photo.digest for photo in todo.training)]
    if todo.held_out:
        _hold_out(model, todo.held_out, workers)
    entry: dict[str, Any] = {
        "date": today,
        "new": list(todo.new),
        "refreshed": list(todo.refreshed),
        "photos": len(todo.training),
        "training": asdict(lesson.choice.training) if model.settings.trained else {},
    }
    note_accuracy(entry, model, workers)
    return entry


def _hold_out(model: Model, photos: tuple[Photo, ...], workers: int) -> None:
    """Add the newly held-out photos to the earlier ones."""
    fresh = _photos(photos, model.settings, workers)
    kept = self_contained(model.held_out.followed_by(fresh) if model.held_out is not None else fresh)
    assert isinstance(kept, Photos)
    model.held_out = kept
    label_of = {name: label for label, name in enumerate(model.names)}
    model.held_out_targets = torch.cat([model.held_out_targets, torch.tensor([label_of[p.label] for p in photos])])
    model.held_out_digests = [*model.held_out_digests, *(photo.digest for photo in photos)]


def note_accuracy(entry: dict[str, Any], model: Model, workers: int) -> None:
    """Measure the model, and note it in the newest entry of its history."""
    targets, found = _measured(model, workers)
    entry |= {"measured": len(targets), "accuracy": {}, "old_accuracy": {}, "new_accuracy": {}, "per_class": {}}
    labels, old = targets.numpy(), len(model.classes) - len(entry["new"])
    for name, measured in found.items():
        entry["accuracy"][name] = measured.accuracy
        entry["per_class"][name] = dict(zip(model.names, measured.per_class, strict=True))
        for key, own in (("old_accuracy", labels < old), ("new_accuracy", labels >= old)):
            entry[key][name] = accuracy(measured.predicted[own], labels[own]) if own.any() else None


def _measured(model: Model, workers: int) -> tuple[Tensor, dict[str, Measured]]:
    """Both inferences on photos the model was not fitted to: each left out in turn, or held out from training."""
    classes, kept = len(model.classes), model.learner.kept
    if kept:
        model.adopt()
        chosen = judged(kept["targets"])
        targets, labels = kept["targets"][chosen], {name: kept[f"left_out_{name}"][chosen] for name in INFERENCES}
        return targets, {name: Measured.of(own, targets, classes) for name, own in labels.items() if len(targets)}
    if model.held_out is None:
        model.temperatures, model.familiar = {}, model.familiar[:0]
        return torch.zeros(0, dtype=torch.int64), {}
    scores = model.learner.predict(replace(model.held_out, workers=workers))
    model.temperatures = fit_temperatures(scores, model.held_out_targets)
    model.familiar = highest(scores)
    return model.held_out_targets, measure(scores, model.held_out_targets, classes)
