"""Look for damage in a model file and the files beside it, without changing them, and say what can be recovered."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

from podnet.errors import DamagedFileError, Finding, MissingPackageError, PodnetError, counted, printable, quoted
from podnet.io.files import UNFINISHED, is_locked
from podnet.io.tensors import load_tensors
from podnet.model.changing import can_undo, checkpoint_file, earlier_files, interrupted, lock_file, require_model
from podnet.model.loading import load_model


def check_model(path: Path) -> Iterator[Finding]:
    """Look at a model, at the state before its last change, and at what interrupted commands left."""
    changing = is_locked(lock_file(path))
    if changing:
        yield Finding("a process is changing this model: what is said here may have changed already", "note")
    if not (path.parent.is_dir() and (earlier_files(path) or checkpoint_file(path).exists())):
        require_model(path)
    whole = yield from _whole(path)
    for file in earlier_files(path):
        yield from _earlier(path, file, whole)
    yield from _interrupted_lesson(path)
    if not changing and (files := list(path.parent.glob(f".*{UNFINISHED}"))):
        size = sum(file.stat().st_size for file in files) / 1e6
        words = f"{counted(len(files), 'partial file')} beside it, {size:.1f} MB"
        yield Finding(f"{words}, of killed processes or of some that are writing now", "note")


def _whole(path: Path) -> Generator[Finding, None, bool]:
    """Load a model of any format; returns whether it is whole."""
    try:
        model = load_model(path)
    except MissingPackageError as error:
        yield Finding(f"{error} Its checksum is right; the rest cannot be checked without the package", "note")
        return True
    except DamagedFileError as error:
        _require_a_model(path)
        yield Finding(str(error), "broken")
        return False
    except PodnetError as error:
        if path.exists():  # a folder, a photo, or of a newer version
            raise
        yield Finding(str(error), "broken")
        return False
    knows = f"{counted(len(model.classes), 'class')}, {counted(len(model.history), 'lesson')}"
    yield Finding(f"{printable(path.name)}: {knows}")
    return True


def _require_a_model(path: Path) -> None:
    """Refuse a file of a run, which is whole, but not a model."""
    try:
        _, meta = load_tensors(path)
    except PodnetError:
        return
    if isinstance(meta, dict) and "format" not in meta and "task" in meta:
        raise PodnetError(
            f"{printable(path)} is a file of a run, and its checksum is right; give the folder of the run to check it."
        )


def _earlier(path: Path, file: Path, whole: bool) -> Iterator[Finding]:
    """The model before its last change."""
    try:
        model = load_model(file)
    except MissingPackageError:
        words = "the model before its last change: its checksum is right"
    except DamagedFileError as error:
        yield Finding(f"the model before its last change: {error}", "broken", f"rm {quoted(file)}")
        return
    else:
        words = f"the model before its last change is whole, with {counted(len(model.classes), 'class')}"
    if not whole:
        yield Finding(f"{words}; put it in place:", "note", f"mv {quoted(file)} {quoted(path)}")
    elif can_undo(path):
        yield Finding(f"{words}; to go back to it:", "ok", f"podnet undo {quoted(path)}")
    else:
        yield Finding(f"{words}; it was left by an interrupted command, and the next change removes it", "note")


def _interrupted_lesson(path: Path) -> Iterator[Finding]:
    left = checkpoint_file(path)
    if not left.exists():
        return
    try:
        load_tensors(left)
    except PodnetError as error:
        words = f"the checkpoint of an interrupted lesson: {error} The lesson must begin again"
        yield Finding(words, "broken", f"rm {quoted(left)}")
        return
    if interrupted(path):
        words = "a lesson was interrupted, and its checkpoint is whole; repeat its command to continue:"
        yield Finding(words, "note", f"podnet learn {quoted(path)} PHOTOS")
