"""Change a model file: one process at a time, and the file before the change is kept until that is accepted."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podnet.errors import PodnetError, printable
from podnet.io.files import locked, stamp


def checkpoint_file(path: Path) -> Path:
    """The checkpoint of an interrupted call of learn, beside the model."""
    return path.with_name(f".{path.name}.learning")


def lock_file(path: Path) -> Path:
    """What a process that changes the model holds."""
    return path.with_name(f".{path.name}.lock")


def earlier_files(path: Path) -> list[Path]:
    """The model before its last change, if that was kept; or before a change that was interrupted."""
    beginnings = (f".{path.name}.before-", f".{path.name}.unchanged")
    return sorted(file for file in path.parent.iterdir() if file.name.startswith(beginnings))


def require_model(path: Path) -> None:
    """Fail if there is no such file, and tell how to make one."""
    if not path.exists():
        name = printable(path)
        raise PodnetError(f"there is no model {name}; 'podnet learn {name} PHOTOS' creates it.")


@contextmanager
def changing(path: Path, undoable: bool = False) -> Iterator[None]:
    """Lock the model: only one process at a time may change it.

    With `undoable` the previous file is kept until the change is accepted or another follows. The checkpoint of an
    interrupted call of learn is useless for a changed model and is removed.
    """
    lock, before = lock_file(path), path.with_name(f".{path.name}.unchanged")
    with locked(lock, f"another process is changing {printable(path)}; wait until it ends."):
        try:
            before.unlink(missing_ok=True)  # left by a killed process
            if undoable and path.exists():
                _link(path, before)
            old = stamp(path)
            yield
            if stamp(path) != old:
                checkpoint_file(path).unlink(missing_ok=True)
            _forget_before(path)
            if before.exists():
                os.replace(before, _kept_before(path))
        finally:
            before.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _link(path: Path, other: Path) -> None:
    """Hard-link the file: it is only ever replaced, never modified in place."""
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        shutil.copyfile(path, other)


def _kept_before(path: Path) -> Path:
    """The backup of the file before its last change, named after the hash of the current file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.with_name(f".{path.name}.before-{digest[:16]}")


def _forget_before(path: Path) -> None:
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.before-"):
            file.unlink(missing_ok=True)


def can_undo(path: Path) -> bool:
    """Whether there is a backup of the file before its last change."""
    return path.exists() and _kept_before(path).exists()


def undo(path: Path) -> None:
    """Restore the previous file."""
    require_model(path)
    with changing(path):
        if not can_undo(path):
            raise PodnetError(
                f"nothing to undo: there is no earlier state of {printable(path)}; only the last change can be undone."
            )
        os.replace(_kept_before(path), path)


def accept(path: Path) -> None:
    """Keep the change and remove the backup."""
    with changing(path):
        pass
