"""One step back: a model file as it was before its last change, kept beside it until the change is accepted."""

from __future__ import annotations

import os
from pathlib import Path

from podnet.errors import PodnetError, printable
from podnet.model.model import changing, kept_before


def can_undo(path: Path) -> bool:
    """Whether the state before the last change is there."""
    return path.exists() and kept_before(path).exists()


def undo(path: Path) -> None:
    """Bring back the file as it was."""
    with changing(path):
        if not can_undo(path):
            raise PodnetError(f"there is nothing to undo: no earlier state of {printable(path)} is kept.")
        os.replace(kept_before(path), path)


def accept(path: Path) -> None:
    """Keep the change, and the state before it no longer."""
    with changing(path):
        pass
