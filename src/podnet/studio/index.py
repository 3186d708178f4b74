"""The runs below a folder, kept up to date cheaply: only what was added to a file is read."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from podnet.io.files import GrowingLines, stamp
from podnet.runs.folder import Run
from podnet.studio.summary import Summary, summarise

WALK_SECONDS = 2.0  # between searches for new runs
WALK_SHARE = 0.1  # largest share of the time spent searching, for large folders


class WatchedRun(Run):
    """A run whose files are read only once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reading = threading.RLock()
        self._results = GrowingLines(self.results_file)
        self._epochs = GrowingLines(self.epochs_file)
        self._config: dict[str, Any] | None = None

    def config(self) -> dict[str, Any]:
        if self._config is None:
            self._config = super().config()
        return self._config

    def results(self) -> list[dict[str, Any]]:
        with self.reading:
            return self._results.update()

    def epochs(self) -> list[dict[str, Any]]:
        with self.reading:
            return self._epochs.update()

    def generation(self, file: Path) -> int:
        """Changes when that file is read again from its start."""
        return (self._results if file == self.results_file else self._epochs).generation

    def stamp(self) -> tuple[object, ...]:
        """Changes whenever the run does."""
        files = (self.config_file, self.results_file, self.epochs_file, self.failure_file)
        return *(stamp(file) for file in files), self.is_being_written()


class Entry(NamedTuple):
    """What is known of a run, and the index version of its last change."""

    run: WatchedRun
    stamp: tuple[object, ...]
    summary: Summary
    text: str  # the summary as JSON, made once for all pages
    version: int


class Changes(NamedTuple):
    """The changes after some version."""

    version: int
    runs: list[str]  # summaries as JSON
    removed: list[str]


class RunIndex:
    """All runs below a folder, by an id that does not reveal their location: no request names a path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self._entries: dict[str, Entry] = {}
        self._removed: dict[str, int] = {}  # id -> version
        self.walked = False  # whether all runs were looked at once
        self._next_walk = 0.0
        self._looking = threading.Lock()  # at the files
        self._telling = threading.Lock()  # what was seen: held for an instant

    def entry(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def since(self, version: int) -> Changes:
        """The runs that changed after a version, and those removed; all of them after version 0."""
        with self._telling:
            runs = [entry.text for entry in self._entries.values() if entry.version > version]
            return Changes(self.version, runs, [key for key, gone in self._removed.items() if gone > version])

    def refresh(self) -> bool:
        """Check the files once; returns whether anything changed."""
        with self._looking:
            before = self.version
            if time.monotonic() >= self._next_walk:
                self._walk()
            for key, entry in list(self._entries.items()):
                self._look(key, entry)
            self.walked = True
            return self.version > before

    def _walk(self) -> None:
        began = time.monotonic()
        found = {_key(folder, self.folder): folder for folder in run_folders(self.folder)}
        for key in self._entries.keys() - found.keys():
            self._remove(key)
        for key in found.keys() - self._entries.keys():
            self._update(key, WatchedRun(found[key]))
        took = time.monotonic() - began
        self._next_walk = time.monotonic() + max(WALK_SECONDS, took / WALK_SHARE)

    def _look(self, key: str, entry: Entry) -> None:
        if not os.path.exists(entry.run.config_file):  # also for a folder without read permission
            self._remove(key)
            return
        stamp = entry.run.stamp()
        if stamp != entry.stamp:
            begun_anew = stamp[0] != entry.stamp[0]
            self._update(key, WatchedRun(entry.run.folder) if begun_anew else entry.run)

    def _update(self, key: str, run: WatchedRun) -> None:
        stamp = run.stamp()
        name = "" if run.folder == self.folder else str(run.folder.relative_to(self.folder))
        summary = summarise(key, run, name, running=bool(stamp[-1]))
        text = json.dumps(asdict(summary))
        with self._telling:
            self.version += 1
            self._removed.pop(key, None)
            self._entries[key] = Entry(run, stamp, summary, text, self.version)

    def _remove(self, key: str) -> None:
        with self._telling:
            self.version += 1
            del self._entries[key]
            self._removed[key] = self.version


def run_folders(folder: Path) -> Iterator[Path]:
    """The run folders in a folder, itself included; links are not followed, and runs are not searched."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as listed:
                entries = list(listed)
        except OSError:  # removed in the meantime, or not readable
            continue
        if any(entry.name == "config.yaml" for entry in entries):
            yield here
            continue
        shown = (entry for entry in entries if not entry.name.startswith("."))
        waiting += [Path(entry.path) for entry in shown if entry.is_dir(follow_symlinks=False)]


def _key(folder: Path, root: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.relative_to(root))).hexdigest()[:12]
