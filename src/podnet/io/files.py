"""Atomic file writes, locks, and JSON lines that survive a crash."""

import contextlib
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from podnet.errors import BusyError, PodnetError

UNFINISHED = ".unfinished"  # suffix of a file being written
LAST = 256  # bytes compared to distinguish a file that grew from a replaced one


def cache_folder() -> Path:
    """Where the user's programs keep what they can make again; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "podnet"


def write_atomically(path: Path, data: bytes | str | Iterable[bytes]) -> None:
    """Write a file so that at any moment, even after a crash, it has either the old or the new content in full."""
    if isinstance(data, str):
        data = data.encode(errors="backslashreplace")  # a name from elsewhere may be no Unicode
    parts = [data] if isinstance(data, bytes) else data
    try:
        temporary, descriptor = _begun(unfinished(path))
        with open(descriptor, "wb") as file:
            try:
                with contextlib.suppress(OSError):  # a file that others may not read stays so
                    os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)  # still locked: nobody takes it for the file of a killed process
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        _sync_folder(path.parent)
    except OSError as error:
        raise PodnetError(
            f"cannot write {path}: {error.strerror}. Existing files are unchanged; "
            "free some space or choose another folder, then run the command again (podnet run: with --resume)."
        ) from error


def expanded(path: str | os.PathLike) -> Path:
    """With the user's folder for ~; a ~ that nobody has is part of the name."""
    return Path(os.path.expanduser(path))


def in_its_place(path: str | os.PathLike) -> Path:
    """Where a file that will be replaced is: expanded, and at the end of a link, which would be replaced itself."""
    place = expanded(path)
    return Path(os.path.realpath(place)) if place.is_symlink() else place


def unfinished(path: Path) -> Path:
    """The name of a file while it is written."""
    return path.with_name(f".{path.name}{UNFINISHED}")


def _begun(temporary: Path) -> tuple[Path, int]:
    """Open an empty file and lock it while it is written; what a killed process left by that name is removed."""
    while True:
        remove_abandoned(temporary)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # minus the umask
        except FileExistsError:  # another process is writing the same file
            temporary = temporary.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")
            continue
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # removed by another process before it was locked


def remove_abandoned(temporary: Path) -> None:
    """Remove a file unless a process is writing it."""
    with contextlib.suppress(OSError), open(temporary, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(temporary)


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power failure."""
    with contextlib.suppress(OSError):  # not every file system supports it; the file is complete and in place anyway
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file; if another process holds it, fail with the message `busy`. The holder may remove the file."""
    for wait in (0.02, 0.1, 0.0):  # `is_locked` holds the lock for an instant
        with _opened(path) as file:
            if _lock(file, path):
                yield
                return
        time.sleep(wait)
    raise BusyError(busy)


def _opened(path: Path) -> TextIO:
    try:
        return open(path, "w")
    except OSError as error:
        raise PodnetError(f"cannot write in {path.parent}: {error.strerror}; choose another folder.") from error


def _lock(file: TextIO, path: Path) -> bool:
    """Whether we hold the lock now. A lock on a file that was removed in the meantime protects nothing."""
    why = "locks do not hold on its file system"
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return False
        if is_locked(path):
            return True
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        why = f"its file system has no locks ({error.strerror})"
    os.unlink(path)
    raise PodnetError(f"cannot lock {path.parent}: {why}, so two processes could write at once; use a local folder.")


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does; None if it cannot be found."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON line completely or not at all."""
    append(path, (json.dumps(record) + "\n").encode())


def append(path: Path, data: bytes) -> None:
    """Append to a file completely or not at all: a failed write is undone."""
    try:
        with open(path, "ab", buffering=0) as file:  # a buffer would be flushed again on close
            size = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, size)
                raise
    except OSError as error:
        raise PodnetError(
            f"cannot write {path}: {error.strerror}. Earlier lines are unchanged; free some space, then use --resume."
        ) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    return _parsed(path.read_bytes().split(b"\n")[:-1], path)


def _parsed(lines: list[bytes], path: Path) -> list[dict[str, Any]]:
    try:
        records = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise PodnetError(f"{path} is damaged: a line is not JSON ({error}); fix it or start the run again.") from error
    if not all(isinstance(record, dict) and "task" in record for record in records):
        raise PodnetError(f"{path} is damaged: a line has no task; fix it or start the run again.")
    return records


class GrowingLines:
    """The records of a JSON-lines file; each update reads only what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._restart()

    def _restart(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.generation = time.time_ns()  # new whenever the file is read from the start: earlier counts become invalid
        self._file = 0  # its inode
        self._read = 0  # bytes
        self._last = b""  # the last bytes read, to compare: inodes are reused

    def update(self) -> list[dict[str, Any]]:
        """All records; an incomplete last line is left for later."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                file.seek(self._read - len(self._last))
                goes_on = status.st_ino == self._file and file.read(len(self._last)) == self._last
                if not goes_on:
                    if self._file:
                        self._restart()
                    self._file = status.st_ino
                    file.seek(0)
                added = file.read()
        except FileNotFoundError:
            if self._file:
                self._restart()
            return self.records
        whole = added[: added.rfind(b"\n") + 1]
        self.records = [*self.records, *_parsed(whole.split(b"\n")[:-1], self.path)]
        self._read += len(whole)
        self._last = (self._last + whole)[-LAST:]
        return self.records


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a JSON-lines file with only the wanted records."""
    if path.exists():
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in read_lines(path) if wanted(record)))
