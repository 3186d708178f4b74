"""Files written whole or not at all, and JSON lines that survive a crash."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from podnet.errors import PodnetError


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file so that at any moment, crash included, either the old or the new content is there whole."""
    if isinstance(data, str):
        data = data.encode()
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise PodnetError(
            f"cannot write {path}: {error.strerror}. What was there before is unchanged; "
            "make room or choose another folder, then continue with --resume."
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one JSON line, wholly or not at all: a failed write is taken back."""
    line = (json.dumps(record) + "\n").encode()
    try:
        with open(path, "ab") as file:
            size = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, size)
                raise
    except OSError as error:
        raise PodnetError(
            f"cannot write {path}: {error.strerror}. The lines before are unchanged; make room, then use --resume."
        ) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise PodnetError(f"{path} is damaged: a line is not JSON ({error}).") from error


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a JSON-lines file with only the wanted records."""
    if path.exists():
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in read_lines(path) if wanted(record)))
