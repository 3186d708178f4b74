"""Plan what one call of learn will learn, and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from podnet.data.collection import Collection, Photo, read_collection, refuse_lookalikes
from podnet.errors import ConfigError, DataError, PodnetError, in_words, printable
from podnet.model.changing import tidy
from podnet.model.loading import load_model
from podnet.model.model import Model
from podnet.model.settings import Choice, choose
from podnet.randomness import generator

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


@dataclass(frozen=True)
class Lesson:
    """Everything about one call of learn."""

    model: Model | None  # before the call
    collection: Collection
    todo: Plan
    choice: Choice

    def digest(self, path: Path) -> str:
        """A fingerprint of the call: an interrupted one with the same can be resumed."""
        todo, choice = self.todo, self.choice
        photos = [(photo.digest, photo.label) for photo in (*todo.training, *todo.held_out)]
        before = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
        facts = [asdict(choice.settings), asdict(choice.training), todo.new, todo.refreshed, photos, before]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def prepare(path: Path, photos: Path, given: Mapping[str, Any], include_known: bool, device: str) -> Lesson:
    """Read the model and the photos and decide what is learned, and how; `given` settings have priority."""
    tidy(path)
    model = load_model(path, device) if path.exists() else None
    collection = read_collection(photos)
    if model is not None and not include_known and set(collection.counts) <= set(model.names):
        raise DataError(
            f"nothing to learn: {printable(path)} already knows {in_words(collection.counts)}; "
            "to add new photos of them use --include-known."
        )
    return planned(model, collection, given, include_known, device)


def planned(
    model: Model | None, collection: Collection, given: Mapping[str, Any], include_known: bool, device: str
) -> Lesson:
    """What is learned from these photos, and how."""
    known = model.settings if model else None
    choice = choose(collection, given, known, on_gpu=device.startswith("cuda"))
    share = choice.training.held_out
    if not 0 <= share <= 0.5:
        raise ConfigError(f"held_out is {share}; it must be a share from 0 to 0.5.")
    todo = plan(collection, model, share if choice.settings.trained else 0.0, include_known)
    if choice.settings.trained:  # epochs and batches follow from the photos to train on
        choice = choose(Collection(todo.training), given, known, on_gpu=device.startswith("cuda"))
    return Lesson(model, collection, todo, choice)


def plan(collection: Collection, model: Model | None, share: float, include_known: bool) -> Plan:
    """Which classes are new, and which photos are held out; deterministic. Photos learned before are left out.

    A network may be trained on a photo again, but it is never measured with one that it was trained on.
    """
    known = dict.fromkeys(model.names if model else ())
    counts = collection.counts
    refuse_lookalikes(list(counts), list(known))
    new = tuple(label for label in counts if label not in known)
    old = tuple(label for label in known if label in counts)
    refreshed = old if include_known else ()
    if model is None and len(new) < 2:
        raise DataError(f"a new model needs photos of at least 2 classes; found {len(new)} ({new[0]!r}).")
    if model is not None and not model.can_learn:
        raise PodnetError("the model was saved without data from its photos; it can predict but not learn more.")
    training, held_out = [], []
    seen = {*model.held_out_digests, *model.digests} if model else set()
    trained_on = set().union(*model.trained_on.values()) if model else set()
    usable: dict[str, list[Photo]] = {label: [] for label in counts}
    for photo in collection.photos:
        if photo.digest not in seen:
            usable[photo.label].append(photo)
    for label in (*refreshed, *new):
        parts = split([photo for photo in usable[label] if photo.digest not in trained_on], share)
        training += [photo for photo in usable[label] if photo.digest in trained_on] + parts[0]
        held_out += parts[1]
    trained = {photo.label for photo in training}
    refreshed = tuple(label for label in refreshed if label in trained)
    if not trained.issuperset(new) or not trained:
        raise DataError("the model has already learned these photos or holds them out for measuring; add other photos.")
    return Plan(new, refreshed, () if include_known else old, tuple(training), tuple(held_out))


def split(photos: Sequence[Photo], share: float) -> tuple[list[Photo], list[Photo]]:
    """The photos of one class to train on, and those held out; deterministic."""
    if len(photos) < FEWEST_FOR_HELD_OUT:
        return list(photos), []
    count = min(MOST_HELD_OUT, round(share * len(photos)))
    order = torch.randperm(len(photos), generator=generator(0, "held out", photos[0].label)).tolist()
    return [photos[i] for i in sorted(order[count:])], [photos[i] for i in sorted(order[:count])]


def trained(lesson: Lesson) -> Lesson:
    """The same lesson for a model whose network is trained."""
    settings = replace(lesson.choice.settings, trained=True, keep="photos")
    choice = replace(lesson.choice, settings=settings, trial=False)
    return replace(lesson, todo=plan(lesson.collection, None, choice.training.held_out, False), choice=choice)
