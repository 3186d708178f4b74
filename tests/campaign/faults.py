"""Files that fail, or a process that stops, at the k-th change of anything below a folder.

Every change that Python code makes there is counted: a file created, written, synced, renamed, linked, cut, removed.
The count is shared by all processes that are forked afterwards. A write that fails or stops has written its first half.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import struct
from collections.abc import Callable
from typing import Any

STOPPED = 77  # exit code of a process that stopped
HOWS = ("stop", "full", "broken")  # os._exit; ENOSPC from then on; EIO once
NEEDS_SPACE = {"create", "write", "fsync", "link", "mkdir"}


class Faults:
    """Counts the changes below `root`; the `at`-th one (from 1) goes wrong. With at=0 all go well."""

    def __init__(self, root: str, at: int = 0, how: str = "stop") -> None:
        self.root, self.at, self.how = os.path.realpath(root) + os.sep, at, how
        self._shared = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        return int(struct.unpack("q", self._shared[:8])[0])

    def happens(self, kind: str, half: Callable[[], object] = lambda: None) -> None:
        """Count a change; raise or stop here if it is the one."""
        self._shared[:8] = struct.pack("q", self.count + 1)
        if self.how == "full":
            if self.at and self.count >= self.at and kind in NEEDS_SPACE:
                half()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif self.count == self.at:
            half()
            if self.how == "stop":
                os._exit(STOPPED)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def ours(self, place: Any) -> bool:
        """Whether a path or a file descriptor is below the folder."""
        try:
            path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.path.abspath(place)
        except (OSError, TypeError):
            return False
        return os.fsdecode(path).startswith(self.root)

    def install(self) -> None:
        """From now on, in this process and those it forks."""
        changes = ("replace", "rename", "unlink", "remove", "link", "truncate", "mkdir", "rmdir", "fsync")
        for name in changes:
            self._patch(name)
        plain_open = os.open

        def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & os.O_CREAT and self.ours(path):
                self.happens("create")
            return plain_open(path, flags, *args, **options)

        os.open = opened
        builtins.open = io.open = self._opening(builtins.open)

    def _patch(self, name: str) -> None:
        plain = getattr(os, name)

        def change(place: Any, *args: Any, **options: Any) -> Any:
            if self.ours(place):
                self.happens(name)
            return plain(place, *args, **options)

        setattr(os, name, change)

    def _opening(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or not self.ours(file):
                return plain(file, mode, *args, **options)
            if not isinstance(file, int) and not os.path.exists(file):
                self.happens("create")
            return _Written(plain(file, mode, *args, **options), self)

        return opened


class _Written:
    """A file open for writing."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: Any) -> Any:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._faults.happens("write", half)
        return self._file.write(data)
