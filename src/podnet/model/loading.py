"""Load a model file. What it claims is checked against its content before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podnet.data.collection import class_name
from podnet.data.decode import is_picture
from podnet.data.images import Images
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.engine.saving import below
from podnet.errors import MALFORMED, DamagedFileError, MissingPackageError, NotAModelError, PodnetError, printable
from podnet.io.tensors import load_tensors
from podnet.methods.ridge import Ridge
from podnet.metrics import INFERENCES
from podnet.model.changing import require_model
from podnet.model.model import FORMAT, ClassRecord, Model
from podnet.model.settings import Settings, Training, make_learner
from podnet.nets.building import require_room

UNTRAINED = Training(epochs=1, batch_size=8)  # for a model that only predicts


def load_model(path: Path, device: str = "cpu") -> Model:
    """Load a model. What the file claims is checked against its content before anything is built."""
    path = Path(path)
    require_model(path)
    try:
        tensors, meta = load_tensors(path)
    except DamagedFileError as error:
        if is_picture(path):
            raise NotAModelError(f"{printable(path)} is not a podnet model.") from error
        raise
    version = meta.get("format") if isinstance(meta, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise PodnetError(
            f"{printable(path)} was written by a newer podnet (format {version}); upgrade podnet to read it."
        )
    try:
        return _restored(tensors, meta, device)
    except MissingPackageError as error:
        raise MissingPackageError(f"{printable(path)}: {error}") from error
    except (PodnetError, *MALFORMED) as error:
        raise DamagedFileError(
            f"{printable(path)} is damaged or not a model file ({' '.join(str(error).split())})."
        ) from error


def _restored(tensors: Mapping[str, Tensor], meta: Mapping[str, Any], device: str) -> Model:
    while meta["format"] != FORMAT:
        meta = UPGRADES[meta["format"]](meta)
    settings = Settings(**meta["settings"])
    learned = meta["learner"]
    classes = _classes(meta["classes"])
    names = [record.name for record in classes]
    _check_meta(meta, names)
    temperatures = {str(name): float(value) for name, value in meta["temperatures"].items()}
    require_room(settings.backbone, tensors)
    learner = make_learner(settings, UNTRAINED, device)
    learner.restore(below("learner.", tensors), learned)
    _check_weights(learner, len(names))
    memory = learner.memory
    if memory.images is not None and memory.targets is not None:
        learner.memory = replace(memory, images=_photos(memory.images, memory.targets, settings, len(names)))
    model = Model(settings, learner, classes, meta["history"], temperatures)
    if held_out := below("held_out.", tensors):
        model.held_out_targets = held_out["targets"]
        model.held_out = _photos(Photos.from_state(held_out), model.held_out_targets, settings, len(names))
    model.held_out_digests = [str(digest) for digest in meta["held_out_digests"]]
    model.digests = [str(digest) for digest in meta["digests"]]
    trained_on = meta.get("trained_on", {})  # earlier versions did not record it
    model.trained_on = {str(name): [str(digest) for digest in own] for name, own in trained_on.items()}
    if len(model.held_out_digests) != len(model.held_out_targets):
        raise ValueError("its held-out photos and their digests do not match")
    model.familiar = _familiar(tensors)
    _check_kept(model)
    return model


def _check_meta(meta: Mapping[str, Any], names: Sequence[str]) -> None:
    learned = meta["learner"]
    if list(names) != learned["class_names"] or len(set(names)) != len(names) or not names:
        raise ValueError("its class names do not match or repeat")
    if not isinstance(meta["history"], list) or not meta["history"]:
        raise ValueError("it has no history")
    for entry in meta["history"]:
        _check_entry(entry)
    if not all(0 < float(value) < float("inf") for value in meta["temperatures"].values()):
        raise ValueError("a temperature is not above 0 or is infinite")
    if min(learned["sizes"], default=0) < 1 or sum(learned["sizes"]) != len(names):
        raise ValueError("its classes do not add up")
    if learned["progress"] is not None or learned["previous_sizes"] is not None:
        raise ValueError("it was saved in the middle of a lesson")


def _classes(records: Sequence[Mapping[str, Any]]) -> list[ClassRecord]:
    """The classes, whose labels are distinct and read like their names."""
    classes: list[ClassRecord] = [_typed(ClassRecord, record) for record in records]
    for record in classes:
        date.fromisoformat(record.learned)
        if class_name(str(record.meant)) != class_name(record.name):
            raise ValueError("the label and the name of a class do not match")
    if len({record.meant for record in classes}) != len(classes):
        raise ValueError("two classes have the same label")
    return classes


def _check_weights(learner: Learner, classes: int) -> None:
    classifier, means = learner.network.classifier, learner.means
    if classifier.classes != classes or means is None or means.shape != (classes, classifier.dim):
        raise ValueError("its weights or class means have the wrong number of classes")
    numbers = (means, *classifier.parameters())
    if means.dtype != torch.float32 or not all(value.isfinite().all() for value in numbers):
        raise ValueError("its weights or class means have a NaN, an infinite number or a wrong type")


def _familiar(tensors: Mapping[str, Tensor]) -> Tensor:
    found = tensors.get("familiar", torch.zeros(0, 2))
    if found.dtype != torch.float32 or found.dim() != 2 or found.shape[1] != 2 or not found.isfinite().all():
        raise ValueError("its scores of known photos have a wrong type, shape or value")
    return found


def _check_kept(model: Model) -> None:
    """What a method in closed form keeps, and the digests of those photos; a trained network keeps only photos."""
    learner, photos = model.learner, 0
    if learner.kept:
        if not isinstance(learner.method, Ridge):
            raise ValueError("its network is trained, but it has features")
        learner.method.require_whole(learner.kept, len(model.classes), learner.network.classifier.dim)
        photos = len(learner.kept["targets"])
    if len(model.digests) != photos:
        raise ValueError("its photos and their digests do not match")
    keeps_photos = bool(photos) and model.settings.keep == "photos"
    if not model.settings.trained and (learner.memory.images is not None) != keeps_photos:
        raise ValueError("the photos it keeps do not match its settings")


def _with_weights(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Format 2 records the initial weights of the backbone; before, they were always random."""
    return {**meta, "format": 2, "settings": {**meta["settings"], "weights": "none"}}


def _with_training(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Format 3 records whether lessons train the network; before, they always did, and kept photos for it."""
    settings = {**meta["settings"], "trained": True, "keep": "photos"}
    history = [{**entry, "measured": entry["held_out"]} for entry in meta["history"]]
    return {**meta, "format": 3, "settings": settings, "history": history, "digests": []}


UPGRADES = {1: _with_weights, 2: _with_training}  # format -> upgrade to the next format


def _check_entry(entry: Mapping[str, Any]) -> None:
    """Check that an entry of the history has the fields that others read."""
    shares = [*entry["accuracy"].values()]
    for inference in entry["accuracy"]:
        shares += [value for value in entry["per_class"][inference].values() if value is not None]
        shares += [entry[key][inference] or 0 for key in ("old_accuracy", "new_accuracy")]
    numbers = [entry["photos"], entry["seconds"], entry["measured"], *shares]
    words = [*entry["new"], *entry["refreshed"]]
    right = all(isinstance(value, int | float) and isfinite(value) for value in numbers)
    if not right or not all(isinstance(word, str) for word in words):
        raise TypeError("an entry of its history has a wrong type")
    known = set(entry["accuracy"]) <= set(INFERENCES) and entry["measured"] >= bool(shares)
    if not known or not all(0 <= share <= 100 for share in shares):
        raise ValueError("an accuracy in its history is not from 0 to 100, or of an unknown kind")
    date.fromisoformat(entry["date"])


def _photos(images: Images, targets: Tensor, settings: Settings, classes: int) -> Photos:
    """The photos of a file, at the size given by the settings."""
    fits = isinstance(images, Photos) and targets.dtype == torch.int64 and targets.shape == (len(images),)
    if not fits or (len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < classes):
        raise ValueError("its photos and their classes do not match")
    assert isinstance(images, Photos)
    return replace(images, size=settings.image_size, shrinks=True)


def _typed(kind: type, values: Mapping[str, Any]) -> Any:
    """A record whose values have the types of its fields."""
    for known in fields(kind):
        if known.name in values and type(values[known.name]).__name__ not in known.type.split(" | "):
            raise TypeError(f"{known.name} is not {known.type}")
    return kind(**values)
