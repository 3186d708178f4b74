"""Remove classes from a model file for good."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from podnet.data.photos import Photos
from podnet.errors import PodnetError, printable
from podnet.io.files import in_its_place
from podnet.model.changing import changing, forget_before, require_model, smaller_file
from podnet.model.lessons import note_accuracy
from podnet.model.loading import load_model
from podnet.model.model import Model


def forget(path: str | Path, names: Sequence[str], undoable: bool = False) -> dict[str, int]:
    """Remove classes and return how many photos each had. The new file must contain nothing of these photos."""
    path = in_its_place(path)
    require_model(path)
    names = list(dict.fromkeys(names))
    with changing(path, undoable):
        model = load_model(path)
        traces = {name: _traces(model, model.label_of(name)) for name in names}
        learned = model.learner.kept.get("targets")  # of all its photos, where it keeps something of each
        photos = {
            name: len(own) if learned is None else int((learned == model.label_of(name)).sum())
            for name, own in traces.items()
        }
        for name in names:
            model.forget(name)
        if model.can_learn:  # otherwise it has nothing to measure with
            note_accuracy(model.history[-1], model, workers=0)
        smaller = smaller_file(path)
        try:
            model.save(smaller)
            written = smaller.read_bytes()
            for name, own in traces.items():
                if any(trace in written for trace in own):
                    raise PodnetError(
                        f"a photo of '{printable(name)}' also belongs to another class; nothing was changed."
                    )
            if not undoable:
                forget_before(path)  # first: a backup must not outlive what was forgotten, even if we are killed here
            shutil.copymode(path, smaller)
            os.replace(smaller, path)
        finally:
            smaller.unlink(missing_ok=True)
    return photos


def _traces(model: Model, label: int) -> list[bytes]:
    """What the file keeps of a class's photos: exemplars, held-out photos, features, as they are stored."""
    memory, kept = model.learner.memory, model.learner.kept
    found: list[bytes] = []
    for images, targets in ((memory.images, memory.targets), (model.held_out, model.held_out_targets)):
        if isinstance(images, Photos) and targets is not None:
            found += images[(targets == label).nonzero().flatten()].contents()
    if "features" in kept:
        found += [row.numpy().tobytes() for row in kept["features"][kept["targets"] == label]]
    return found
