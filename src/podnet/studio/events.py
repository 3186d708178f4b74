"""The server's state: it watches the files and pushes changes to every open page."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podnet.io.files import stamp
from podnet.studio.access import Session
from podnet.studio.draft import Draft
from podnet.studio.index import Changes, RunIndex
from podnet.studio.teaching import Teacher
from podnet.studio.uploads import Uploads

if TYPE_CHECKING:
    from podnet.studio.model_view import ModelView

LOOK_SECONDS = 0.5  # between checks of the files
ALIVE_SECONDS = 15  # between keep-alive messages to a page
MOST_STREAMS = 2000
STREAM_SECONDS = 0.001  # between messages to a page, for each page that is open: all of them take part of the time


class Studio:
    """All the state of the server."""

    def __init__(self, folder: Path, model: Path | None) -> None:
        self.index = RunIndex(folder)
        self.model = model
        self.draft = Draft()
        self.teacher = Teacher(model, self.draft, self._fire) if model else None
        self.uploads = Uploads()
        self.streams = 0
        self._boot = f"{time.time_ns():x}"  # versions of another server are invalid here
        self._news = asyncio.Event()
        self._view: ModelView | None = None
        self._ending = False

    def all_runs(self) -> str:
        """`AllRuns` as JSON."""
        if not self.index.walked:
            self.index.refresh()  # the first page may come before the first check
        changes = self.index.since(0)
        about = {"version": self._id(changes), "folder": str(self.index.folder), **self._about()}
        return _with_runs(about, changes.runs)

    def _about(self) -> dict[str, Any]:
        return {"model": self.model.name if self.model else None, "model_version": self.model_version()}

    def view(self) -> ModelView | None:
        """The model, if there is one; torch is loaded only now."""
        if self._view is None and self.model is not None:
            from podnet.studio.model_view import ModelView

            self._view = ModelView(self.model)
        return self._view

    def model_version(self) -> str:
        """Changes with the file; empty if there is none."""
        known = stamp(self.model) if self.model else None
        return "-".join(map(str, known or ()))

    async def watch(self) -> None:
        version = self.model_version()
        warming = None
        while True:
            try:
                changed = await asyncio.to_thread(self.index.refresh)
            except Exception:  # one odd folder must not stop the watching
                logging.getLogger(__name__).exception("reading the runs failed")
                changed = False
            if changed or self.model_version() != version:
                version = self.model_version()
                self._fire()
            warming = warming or asyncio.create_task(asyncio.to_thread(self._warm))
            await asyncio.sleep(LOOK_SECONDS)

    def _warm(self) -> None:
        """Load slow packages before they are needed: matplotlib, and torch for a model."""
        import_module("podnet.report.averages")
        self.view()

    async def stream(self, since: str, session: Session | None) -> AsyncIterator[str]:
        """Server-sent events for one page, from the version it has, until its session ends."""
        boot, _, number = since.partition("-")
        version = int(number) if boot == self._boot and number.isdigit() else -1  # -1: from another server
        teaching, model = None, None
        self.streams += 1
        try:
            while not self._ending and (session is None or session.use()):
                news = self._news
                changes = self.index.since(version)
                if changes.version > version:
                    data = {"removed": changes.removed, "complete": version < 0}
                    yield _event("runs", _with_runs(data, changes.runs), self._id(changes))
                    version = changes.version
                if self.teacher and self.teacher.current is not teaching:
                    teaching = self.teacher.current
                    yield _event("teach", json.dumps(asdict(teaching)))
                if self.model_version() != model:
                    model = self.model_version()
                    yield _event("model", json.dumps(self._about()))
                await asyncio.sleep(min(1.0, self.streams * STREAM_SECONDS))
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_SECONDS)
                except TimeoutError:
                    yield ": alive\n\n"
        finally:
            self.streams -= 1

    def end(self) -> None:
        """End all streams, so that the server can stop."""
        self._ending = True
        self._fire()

    async def close(self) -> None:
        if self.teacher:
            await self.teacher.stop()
        self.draft.close()

    def _id(self, changes: Changes) -> str:
        return f"{self._boot}-{changes.version}"

    def _fire(self) -> None:
        """Wake all waiting streams, and create a new event for the next time."""
        self._news.set()
        self._news = asyncio.Event()


def _with_runs(values: dict[str, Any], runs: list[str]) -> str:
    """An object with one more entry that is already JSON."""
    return f'{json.dumps(values)[:-1]}, "runs": [{", ".join(runs)}]}}'


def _event(name: str, data: str, key: str = "") -> str:
    head = f"id: {key}\n" if key else ""
    return f"{head}event: {name}\ndata: {data}\n\n"
