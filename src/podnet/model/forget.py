"""Remove classes from a model file for good."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from podnet.data.photos import Photos
from podnet.errors import PodnetError, printable
from podnet.model.model import Model, changing, load_model


def forget(path: Path, names: Sequence[str], undoable: bool = False) -> dict[str, int]:
    """Remove classes and return how many photos each had. The new file must contain none of these photos."""
    with changing(path, undoable):
        model = load_model(path)
        photos = {name: _photos_of(model, model.label_of(name)) for name in names}
        for name in names:
            model.forget(name)
        smaller = path.with_name(f".{path.name}.forgetting")
        try:
            model.save(smaller)
            written = smaller.read_bytes()
            for name, own in photos.items():
                if any(photo in written for photo in own):
                    raise PodnetError(
                        f"a photo of '{printable(name)}' is also one of another class; nothing was changed."
                    )
            os.replace(smaller, path)
        finally:
            smaller.unlink(missing_ok=True)
    return {name: len(own) for name, own in photos.items()}


def _photos_of(model: Model, label: int) -> list[bytes]:
    """The exemplars and the held-out photos of a class, as stored in the file."""
    memory = model.learner.memory
    found: list[bytes] = []
    for images, targets in ((memory.images, memory.targets), (model.held_out, model.held_out_targets)):
        if isinstance(images, Photos) and targets is not None:
            found += images[(targets == label).nonzero().flatten()].contents()
    return found
