"""Photos, as files or in memory, that are decoded on demand."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.utils.data
from torch import Tensor

from podnet.data.decode import LEAST_AREA, decode, reason, shrink
from podnet.data.sources import Pack, Selection, Shelf, Sources, from_state, selection, state_of
from podnet.errors import DataError, printable
from podnet.processes import end_with

Unreadable = Literal["error", "skip"]

MISSING = os.strerror(errno.ENOENT)
AHEAD = 2  # batches that each worker prepares in advance


Work = tuple[list[Path | bytes], list[int] | None]  # the photos of a batch, and the seeds of their random crops
Decoded = tuple[np.ndarray, dict[int, str]]  # the readable ones, (n, size, size, 3) uint8, and why others are not


@dataclass(frozen=True, eq=False)
class Photos:
    """Encoded photos, decoded to RGB squares of `size` pixels by `workers` processes (0: in this process).

    The pixels do not depend on `workers`. `unreadable`: a photo that cannot be decoded is an error, or is skipped.
    `hint` tells, in that error, how to skip such photos, where the user can.
    """

    sources: Sources
    size: int = 224
    workers: int = 0
    unreadable: Unreadable = "error"
    shrinks: bool = False  # keep small copies of photos, without metadata
    least_area: float = LEAST_AREA  # of a random crop, as a share of the photo
    hint: str = ""
    _left_out: dict[str, str] = field(default_factory=dict, repr=False)  # shared by all selections

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DataError(f"image size is {self.size}; it must be at least 1.")
        if self.workers < 0:
            raise DataError(f"workers is {self.workers}; it must be a number of processes, or 0 for none.")

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, indices: Tensor | slice) -> Photos:
        """A selection of the photos; nothing is decoded."""
        own = selection(self.sources)
        return replace(self, sources=Selection(own.parts, own.rows[indices]))

    def followed_by(self, other: Photos) -> Photos:
        """Concatenate. Settings are these; workers, the larger number (restored photos have none)."""
        first, second = selection(self.sources), selection(other.sources)
        rows = torch.cat([first.rows, second.rows + sum(map(len, first.parts))])
        joined = Selection((*first.parts, *second.parts), rows)
        in_memory = (not isinstance(part, Pack) and isinstance(part[row], bytes) for part, row in joined.places())
        sources = (*self.contents(), *other.contents()) if all(in_memory) else joined  # frees what was not selected
        return replace(self, sources=sources, workers=max(self.workers, other.workers))

    def batches(
        self, parts: Sequence[Tensor], draws: torch.Generator | None = None, rows: Callable[[int], Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """For each part (indices): those that could be read, and their uint8 (n, 3, size, size) images, in order.

        With `draws` each photo is cropped at random (`least_area` to all of it, aspect ratio 3/4 to 4/3); without, it
        is scaled and its centre cut out. `rows` maps the size of a part to the rows to decode.
        """
        seeds: Sequence[Tensor | None] = [None] * len(parts)
        if draws is not None:  # all at once, here: neither processes nor other users of `draws` change the crops
            sizes = [len(part) for part in parts]
            seeds = torch.randint(2**62, (sum(sizes),), generator=draws).split(sizes)
        if rows is not None:
            wanted = [rows(len(part)) for part in parts]
            parts = [part[own] for part, own in zip(parts, wanted, strict=True)]
            seeds = [None if all_of is None else all_of[own] for all_of, own in zip(seeds, wanted, strict=True)]
        return self._batches(parts, seeds)

    def _batches(self, parts: Sequence[Tensor], seeds: Sequence[Tensor | None]) -> Iterator[tuple[Tensor, Tensor]]:
        work = (
            ([self.sources[i] for i in part.tolist()], None if own is None else own.tolist())
            for part, own in zip(parts, seeds, strict=True)
        )
        decoder = _Decoder(self.size, self.least_area)
        for part, (pixels, failures) in zip(parts, _decode_all(work, decoder, self.workers), strict=True):
            for position, why in failures.items():
                self._leave_out(int(part[position]), why)
            readable = [position for position in range(len(part)) if position not in failures]
            yield part[readable], torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def name_of(self, index: int) -> str:
        """The name of a photo in messages and in `unreadable_names`."""
        source = self.sources[index]
        return printable(source) if isinstance(source, Path) else f"exemplar {index} in memory"

    def _leave_out(self, index: int, why: str) -> None:
        name = self.name_of(index)
        if self.unreadable == "error":
            if why == MISSING:
                raise DataError(f"{name} does not exist{self.hint and f'; {self.hint}'}.")
            raise DataError(f"{name} cannot be read ({why}); fix or remove it{self.hint and f', or {self.hint}'}.")
        self._left_out[name] = why

    def unreadable_names(self) -> dict[str, str]:
        """Name and reason of the photos skipped so far, by these and all selections of the same photos."""
        return dict(self._left_out)

    def kept(self) -> Photos:
        """The same with the file contents in memory: independent of the files, and ready to save."""
        return replace(self, sources=tuple(self.contents()))

    def shelved(self, shelf: Shelf, name: str, held: int, write: Callable[[Callable[[], None]], None]) -> Photos:
        """The same, in memory if there is room besides `held` bytes, else in a pack of that name on the shelf."""
        path, contents = shelf.folder / name, self.contents()
        taken: list[bytes] = []
        for content in contents:
            taken.append(content)
            held += len(content)
            if held > shelf.limit:
                write(lambda: Pack.write(path, chain(taken, contents)))
                return replace(self, sources=Pack.open(path))
        return replace(self, sources=tuple(taken))

    def held(self) -> int:
        """Bytes of content in memory."""
        parts = [part for part in selection(self.sources).parts if isinstance(part, tuple)]
        return sum(len(content) for part in parts for content in part if isinstance(content, bytes))

    def state(self) -> dict[str, Tensor]:
        """Kept photos as tensors."""
        return {**state_of(self.sources), "size": torch.tensor(self.size)}

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], shelf: Shelf | None = None) -> Photos:
        """Restore photos from their `state`; packs are on the shelf."""
        return cls(from_state(tensors, shelf), int(tensors["size"]))

    def contents(self) -> Iterator[bytes]:
        """The contents of the files, or of the small copies to keep."""
        for i in range(len(self)):
            source = self.sources[i]
            if isinstance(source, bytes):
                yield source
                continue
            try:
                yield shrink(source, self.size) if self.shrinks else source.read_bytes()
            except OSError as error:
                raise DataError(f"cannot keep {source} as an exemplar ({error.strerror}); restore the file.") from error


@dataclass(frozen=True)
class _Decoder(torch.utils.data.Dataset[Decoded]):
    """Runs in a worker. A batch brings its own sources, so a worker needs nothing of the dataset."""

    size: int
    least_area: float

    def __getitem__(self, work: Work) -> Decoded:
        sources, seeds = work
        pixels = np.empty((len(sources), self.size, self.size, 3), np.uint8)
        failures: dict[int, str] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings about odd but readable files; decode checks the size
            for position, source in enumerate(sources):
                seed = None if seeds is None else seeds[position]
                try:
                    pixels[position - len(failures)] = decode(source, self.size, seed, self.least_area)
                except Exception as error:  # Pillow raises almost anything on damaged files
                    failures[position] = reason(error)
        return pixels[: len(pixels) - len(failures)], failures


def _decode_all(work: Iterable[Work], decoder: _Decoder, workers: int) -> Iterator[Decoded]:
    """The batches in order; at most workers x AHEAD of them are in progress."""
    if not workers:
        yield from map(decoder.__getitem__, work)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about more workers than cores, and about fork: workers use no thread's lock
        loader = iter(
            torch.utils.data.DataLoader(
                decoder,
                batch_size=None,  # work items are whole batches
                sampler=work,
                num_workers=workers,
                prefetch_factor=AHEAD,
                collate_fn=tuple,  # keeps arrays: tensors would use shared memory, and containers have little of it
                worker_init_fn=partial(_end_with, os.getpid()),  # otherwise they would hold the lock of a killed run
                generator=torch.Generator(),  # otherwise it would draw from the global one
                multiprocessing_context="fork" if sys.platform == "linux" else None,
            )
        )
    while True:
        try:
            done = next(loader)
        except StopIteration:
            return
        except RuntimeError as error:
            raise DataError(f"a decoding process failed ({error}); use fewer workers or free memory.") from error
        yield done


def _end_with(parent: int, worker: int) -> None:
    end_with(parent)
