"""The model file: weights, exemplars, class names, settings and history in one file. Loading it executes no code.

tensors     learner.*    the state of the learner: weights, class means, exemplars as small encoded photos, and what
                         its method keeps of all photos (their features or the sums of these)
            held_out.*   in a trained model, photos that were never trained on, to measure with
            familiar     the highest scores of photos that the model was not fitted to
metadata    format, settings, classes, history, temperatures, digests of the photos, and the learner's own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podnet.data.images import to_tensors
from podnet.data.photos import Photos
from podnet.engine.extraction import Scores
from podnet.engine.learner import Learner
from podnet.errors import PodnetError, counted, in_words, nearest, printable
from podnet.io.tensors import save_tensors
from podnet.metrics import INFERENCES
from podnet.model.measure import Familiarity, highest
from podnet.model.settings import Settings

FORMAT = 3  # of the files written; UPGRADES has the changes between formats


@dataclass(frozen=True)
class ClassRecord:
    """What is known about a class besides its weights."""

    name: str
    learned: str  # the day, as 2026-11-16
    photos: int  # photos it was trained on, in all calls
    label: str | int | float | bool | None = None  # what the estimator calls it, if that is not its name

    @property
    def meant(self) -> str | int | float | bool:
        """The label that the estimator answers with."""
        return self.name if self.label is None else self.label


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
    digests: list[str] = field(default_factory=list)  # of the files of all other photos, in the order of their lessons
    trained_on: dict[str, list[str]] = field(default_factory=dict)  # digests by class, if the network is trained
    familiar: Tensor = field(default_factory=lambda: torch.zeros(0, 2))  # see `measure.Familiarity`

    @property
    def names(self) -> list[str]:
        return [record.name for record in self.classes]

    @property
    def can_learn(self) -> bool:
        """False without exemplars or features: old classes would be forgotten."""
        return self.learner.memory.images is not None or "targets" in self.learner.kept

    @cached_property
    def familiarity(self) -> Familiarity:
        """Tells photos that look like its own from others; of a loaded model, which no longer changes."""
        return Familiarity(self.familiar)

    def unknown(self, scores: Scores, rate: float) -> Tensor:
        """Which photos (N,) look like none of the classes; that share of photos of known classes does, too."""
        return self.familiarity(highest(scores)) < self.familiarity.threshold(rate)

    def exemplar_counts(self) -> list[int]:
        """How many photos are kept of each class, in the order of the classes."""
        return self._per_class(self.learner.memory.targets)

    def kept_counts(self) -> list[int]:
        """Of how many photos of each class something is kept: their features, sums of them, or small copies."""
        return self._per_class(self.learner.kept.get("targets", self.learner.memory.targets))

    def kept_words(self) -> str:
        """What the file keeps of its photos."""
        features = len(self.learner.kept.get("targets", ()))
        return kept_words(self.settings.keep, features, sum(self.exemplar_counts()), len(self.held_out_targets))

    def _per_class(self, targets: Tensor | None) -> list[int]:
        none = torch.zeros(0, dtype=torch.int64)
        counts: list[int] = torch.bincount(none if targets is None else targets, minlength=len(self.classes)).tolist()
        return counts

    def label_of(self, name: str) -> int:
        if name not in self.names:
            known = f"It knows {in_words(self.names)}."
            raise PodnetError(f"the model has no class '{printable(name)}'.{nearest(name, self.names)} {known}")
        return self.names.index(name)

    def save(self, path: Path, exemplars: bool = True) -> None:
        """Write the file atomically. Without what it keeps of its photos it is small and can only predict."""
        tensors, learned = self.learner.state()
        dropped = () if exemplars else ("memory.", "method.")
        tensors = {f"learner.{name}": tensor for name, tensor in tensors.items() if not name.startswith(dropped)}
        tensors["familiar"] = self.familiar.clone()  # the learner may have the same tensor
        if exemplars and self.held_out is not None:
            tensors |= {f"held_out.{name}": tensor for name, tensor in to_tensors(self.held_out).items()}
            tensors["held_out.targets"] = self.held_out_targets
        classes = [asdict(record) for record in self.classes]
        meta = {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "classes": [{name: value for name, value in each.items() if value is not None} for each in classes],
            "history": self.history,
            "temperatures": self.temperatures,
            "held_out_digests": self.held_out_digests if exemplars else [],
            "digests": self.digests if exemplars else [],
            "trained_on": self.trained_on if exemplars else {},
            "learner": learned,
        }
        save_tensors(path, tensors, meta)

    def forget(self, name: str) -> None:
        """Remove a class: its weights, features, exemplars, held-out photos, and its name everywhere."""
        label = self.label_of(name)
        if len(self.classes) == 1:
            raise PodnetError(f"'{printable(name)}' is the only class of the model; delete the file instead.")
        kept = self.learner.kept.get("targets")
        if kept is not None:
            self.digests = [digest for digest, own in zip(self.digests, kept.tolist(), strict=True) if own != label]
        self.learner.forget(label)
        self.adopt()
        del self.classes[label]
        if self.held_out is not None:
            kept = (self.held_out_targets != label).nonzero().flatten()
            self.held_out = self.held_out[kept].kept() if len(kept) else None
            targets = self.held_out_targets[kept]
            self.held_out_targets = targets - (targets > label).long()
            self.held_out_digests = [self.held_out_digests[i] for i in kept.tolist()]
        self.trained_on = {other: own for other, own in self.trained_on.items() if other != name}
        self.history = [_without(entry, name) for entry in self.history]

    def adopt(self) -> None:
        """Take over what a method in closed form measured by leaving each photo out."""
        if kept := self.learner.kept:
            self.temperatures = dict(zip(INFERENCES, kept["temperatures"].tolist(), strict=True))
            self.familiar = kept["familiar"]


def kept_words(keep: str, features: int, small: int, held_out: int = 0) -> str:
    """What is kept of so many photos: their features or sums of these, small copies of some, and of those held out."""
    parts = [f"{'sums of the ' * (keep == 'sums')}features of {counted(features, 'photo')}"] if features else []
    parts += [counted(count, word) for count, word in ((small, "small photo"), (held_out, "held-out photo")) if count]
    return in_words(parts) if parts else "no data from its photos"


def _without(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entry of the history without a class. Its other keys stay: a class may have the same name."""
    listed = {key: [each for each in entry[key] if each != name] for key in ("new", "refreshed")}
    shares = entry.get("per_class", {}).items()
    per_class = {inference: {other: own[other] for other in own if other != name} for inference, own in shares}
    return {**entry, **listed, "per_class": per_class}
