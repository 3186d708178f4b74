"""One step back: a model file as it was before its last change, kept beside it until the change is accepted."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podnet.errors import PodnetError, printable
from podnet.model.model import changing, kept_before


@contextmanager
def undoable(path: Path) -> Iterator[None]:
    """What changes the file inside can be undone, until it is accepted or the file is changed again."""
    copy = path.with_name(f".{path.name}.unchanged")
    if not path.exists():
        yield
        return
    shutil.copyfile(path, copy)
    try:
        yield
        os.replace(copy, _kept(path))
    finally:
        copy.unlink(missing_ok=True)


def can_undo(path: Path) -> bool:
    """Whether the state before the last change is there."""
    return path.exists() and bool(kept_before(path)) and _kept(path).exists()


def undo(path: Path) -> None:
    """Bring back the file as it was."""
    with changing(path):
        if not can_undo(path):
            raise PodnetError(f"there is nothing to undo: no earlier state of {printable(path)} is kept.")
        os.replace(_kept(path), path)


def accept(path: Path) -> None:
    """Keep the change, and the state before it no longer."""
    for kept in kept_before(path):
        kept.unlink(missing_ok=True)


def _kept(path: Path) -> Path:
    """Where the state before is; the name tells of which state, so that it never replaces another."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.with_name(f".{path.name}.before-{digest[:16]}")
