"""Where photos come from: the user's files, contents in memory, or packs that hold many of them."""

from __future__ import annotations

import hashlib
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from podnet.errors import DamagedFileError
from podnet.io.files import write_atomically


class Sources(Protocol):
    """Where photos come from: each is a file, or the content of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Path | bytes: ...


@dataclass(frozen=True, eq=False)
class FileNames:
    """Files below one folder, their names in one array: a million Python objects would take several times the room."""

    root: Path
    names: np.ndarray  # uint8: the names, concatenated
    ends: np.ndarray  # (N,) int64: the end of each name

    @classmethod
    def pack(cls, root: Path, names: Sequence[bytes]) -> FileNames:
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        return cls(root, np.frombuffer(b"".join(names), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int, /) -> Path:
        start = self.ends[index - 1] if index else 0
        return self.root / os.fsdecode(self.names[start : self.ends[index]].tobytes())


@dataclass(frozen=True, eq=False)
class Selection:
    """Some of the entries of other sources, shared and not copied."""

    parts: tuple[Sources, ...]
    rows: Tensor  # numbered across all parts in order

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Path | bytes:
        part, row = self._place(int(self.rows[index]))
        return part[row]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.parts)))

    def places(self) -> Iterator[tuple[Sources, int]]:
        """For each entry, its part and its row there."""
        return map(self._place, self.rows.tolist())

    def _place(self, row: int) -> tuple[Sources, int]:
        part = bisect_right(self._ends, row)
        return self.parts[part], row - (self._ends[part - 1] if part else 0)


def selection(sources: Sources) -> Selection:
    """The sources as a selection of all their entries."""
    if isinstance(sources, Selection):
        return sources
    return Selection((sources,), torch.arange(len(sources)))


@dataclass(frozen=True, eq=False)
class Pack:
    """The contents of many photos in one file, written once: only what is read takes memory.

    The file holds the contents, then the end of each, then their number, as 64-bit integers.
    """

    path: Path
    ends: np.ndarray  # (N,) int64

    @staticmethod
    def write(path: Path, contents: Iterable[bytes]) -> None:
        """Write the file; at most one photo is in memory at a time."""
        ends: list[int] = []

        def parts() -> Iterator[bytes]:
            digest = hashlib.sha256()
            for content in contents:
                ends.append(len(content) + (ends[-1] if ends else 0))
                digest.update(content)
                yield content
            index = np.array([*ends, len(ends)], "<i8").tobytes()
            digest.update(index)
            yield index
            yield digest.digest()

        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, parts())

    @classmethod
    def open(cls, path: Path) -> Pack:
        """Open a file; it is read once to check that it is intact."""
        try:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                digest = hashlib.sha256()
                for start in range(0, len(content) - 32, 2**20):
                    digest.update(content[start : min(start + 2**20, len(content) - 32)])
                count = int.from_bytes(content[-40:-32], "little")
                if digest.digest() != content[-32:]:
                    raise ValueError("its checksum does not match")
                return cls(path, np.frombuffer(content[len(content) - 40 - 8 * count : -40], "<i8"))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise DamagedFileError(f"{path}, which contains exemplars, is missing or damaged ({why}).") from error

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int, /) -> bytes:
        index = range(len(self))[index]
        start = int(self.ends[index - 1]) if index else 0
        with open(self.path, "rb") as file:  # not kept open: a long run has thousands of packs
            file.seek(start)
            return file.read(int(self.ends[index]) - start)


@dataclass(frozen=True)
class Shelf:
    """A folder for exemplars that do not fit into `limit` bytes of memory."""

    folder: Path
    limit: int


def content_lengths(sources: Sources) -> list[int]:
    """Bytes of each photo in memory or in a pack; no pack is read."""
    return [
        int(part.ends[row] - (part.ends[row - 1] if row else 0)) if isinstance(part, Pack) else len(_content(part[row]))
        for part, row in selection(sources).places()
    ]


def _content(source: Path | bytes) -> bytes:
    if isinstance(source, Path):
        raise ValueError("only photos in memory or in packs have a length and a state; use kept().")
    return source


def state_of(sources: Sources) -> dict[str, Tensor]:
    """Contents in memory as tensors; for packs, their names and the rows there."""
    entries = list(selection(sources).places())
    contents = [_content(part[row]) for part, row in entries if not isinstance(part, Pack)]
    tensors = {
        "bytes": torch.from_numpy(np.frombuffer(bytearray().join(contents), np.uint8)),
        "lengths": torch.tensor([len(content) for content in contents], dtype=torch.int64),
    }
    if packs := list(dict.fromkeys(part for part, _ in entries if isinstance(part, Pack))):
        starts = dict(zip(packs, accumulate(map(len, packs), initial=len(contents)), strict=False))
        numbers = iter(range(len(contents)))
        rows = [starts[part] + row if isinstance(part, Pack) else next(numbers) for part, row in entries]
        names = bytearray("\n".join(pack.path.name for pack in packs).encode())
        tensors |= {"rows": torch.tensor(rows), "packs": torch.from_numpy(np.frombuffer(names, np.uint8))}
    return tensors


def from_state(tensors: Mapping[str, Tensor], shelf: Shelf | None = None) -> Sources:
    """Restore sources from their state; packs are on the shelf."""
    contents = tuple(part.numpy().tobytes() for part in tensors["bytes"].split(tensors["lengths"].tolist()))
    if "packs" not in tensors:
        return contents
    if shelf is None:
        raise ValueError("some exemplars are in files of a run, and these files are missing.")
    names = tensors["packs"].numpy().tobytes().decode().split("\n")
    return Selection((contents, *(Pack.open(shelf.folder / Path(name).name) for name in names)), tensors["rows"])
