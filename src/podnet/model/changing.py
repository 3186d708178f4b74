"""Change a model file: one process at a time, and the file before the change is kept until that is accepted."""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podnet.errors import NotAModelError, PodnetError, printable
from podnet.io.files import locked, stamp, unfinished, write_atomically


def checkpoint_file(path: Path) -> Path:
    """The checkpoint of an interrupted call of learn, beside the model."""
    return path.with_name(f".{path.name}.learning")


def lock_file(path: Path) -> Path:
    """What a process that changes the model holds."""
    return path.with_name(f".{path.name}.lock")


def earlier_files(path: Path) -> list[Path]:
    """The model before its last change, if that was kept; or before a change that was interrupted."""
    return sorted(file for file in (*_backups(path), _before(path)) if file.exists())


def require_model(path: Path) -> None:
    """Fail if there is no such file, and tell how to make one."""
    if path.is_dir():
        raise NotAModelError(f"{printable(path)} is a folder, not a model file.")
    if not path.exists():
        name = printable(path)
        raise PodnetError(f"there is no model {name}; 'podnet learn {name} PHOTOS' creates it.")


@contextmanager
def changing(path: Path, undoable: bool = False) -> Iterator[None]:
    """Lock the model: only one process at a time may change it.

    With `undoable` the previous file is kept until the change is accepted or another follows. The checkpoint of an
    interrupted call of learn is useless for a changed model and is removed.
    """
    with _alone(path):
        _settle(path)
        if undoable and path.exists():
            _link(path, _before(path))
        old = stamp(path)
        try:
            yield
        finally:
            if stamp(path) != old:
                checkpoint_file(path).unlink(missing_ok=True)
            _settle(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    lock = lock_file(path)
    with locked(lock, f"another process is changing {printable(path)}; wait until it ends."):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def tidy(path: Path) -> None:
    """Remove what a killed process left beside the model, if that is possible now."""
    with suppress(PodnetError, OSError):
        if any(file.name.startswith(f".{path.name}.") for file in path.parent.iterdir()):
            with _alone(path):
                _settle(path)


def _settle(path: Path) -> None:
    """Bring a change to its end if the model was replaced, or undo its beginning; also that of a killed process."""
    before, smaller, checkpoint = _before(path), smaller_file(path), checkpoint_file(path)
    if before.exists() and path.exists() and not filecmp.cmp(before, path, shallow=False):
        forget_before(path)
        os.replace(before, _kept_before(path))
    partial = (unfinished(file) for file in (smaller, path, checkpoint, before))
    outdated = [] if interrupted(path) else [checkpoint]
    outdated += [file for file in _backups(path) if path.exists() and file != _kept_before(path) and _is_whole(path)]
    for file in (before, smaller, *partial, *outdated):
        file.unlink(missing_ok=True)


def _is_whole(path: Path) -> bool:
    """Whether the model can be read: if not, the file before its last change is the one to recover."""
    from podnet.io.tensors import load_tensors  # imports torch, so only when a backup is in doubt

    try:
        load_tensors(path)
    except PodnetError:
        return False
    return True


def interrupted(path: Path) -> bool:
    """Whether there is an interrupted call to continue: its checkpoint is newer than the model."""
    checkpoint = checkpoint_file(path)
    return checkpoint.exists() and (not path.exists() or checkpoint.stat().st_mtime_ns >= path.stat().st_mtime_ns)


def _before(path: Path) -> Path:
    """The model before the change that is in progress."""
    return path.with_name(f".{path.name}.unchanged")


def smaller_file(path: Path) -> Path:
    """The model without the classes to forget, until that is checked."""
    return path.with_name(f".{path.name}.forgetting")


def _link(path: Path, other: Path) -> None:
    """Hard-link the file: it is only ever replaced, never modified in place."""
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        write_atomically(other, path.read_bytes())


def _kept_before(path: Path) -> Path:
    """The backup of the file before its last change, named after the hash of the current file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.with_name(f".{path.name}.before-{digest[:16]}")


def _backups(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.name.startswith(f".{path.name}.before-")]


def forget_before(path: Path) -> None:
    """Remove the backup of the file before its last change."""
    for file in _backups(path):
        file.unlink(missing_ok=True)


def can_undo(path: Path) -> bool:
    """Whether there is a backup of the file before its last change."""
    return path.exists() and _kept_before(path).exists()


def undo(path: Path) -> None:
    """Restore the previous file."""
    require_model(path)
    with changing(path):
        if not can_undo(path):
            if earlier_files(path):
                name = printable(path)
                raise PodnetError(f"{name} is damaged; 'podnet check {name}' tells what can be recovered.")
            raise PodnetError(
                f"nothing to undo: there is no earlier state of {printable(path)}; only the last change can be undone."
            )
        os.replace(_kept_before(path), path)


def accept(path: Path) -> None:
    """Keep the change and remove the backup."""
    with changing(path):
        forget_before(path)
