"""Undo: the previous model file is kept beside the current one until the change is accepted."""

from __future__ import annotations

import os
from pathlib import Path

from podnet.errors import PodnetError, printable
from podnet.model.changing import changing, kept_before


def can_undo(path: Path) -> bool:
    """Whether there is a backup of the file before its last change."""
    return path.exists() and kept_before(path).exists()


def undo(path: Path) -> None:
    """Restore the previous file."""
    with changing(path):
        if not can_undo(path):
            raise PodnetError(f"nothing to undo: there is no earlier state of {printable(path)}.")
        os.replace(kept_before(path), path)


def accept(path: Path) -> None:
    """Keep the change and remove the backup."""
    with changing(path):
        pass
