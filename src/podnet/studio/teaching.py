"""Teaching from the page: one training process at a time, followed to its end, whatever that is."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from podnet.errors import BusyError, DataError
from podnet.studio.draft import Draft

LONGEST_LINE = 2**24  # bytes of one piece of news: a history entry of a thousand classes


@dataclass(frozen=True)
class Teaching:
    """Where the teaching is."""

    state: Literal["idle", "running", "done", "failed", "stopped"] = "idle"
    message: str = ""
    classes: tuple[str, ...] = ()
    phase: str = ""
    epoch: int = 0
    epochs: int = 0
    share: float = 0.0  # of the phase that is done
    began: float = 0.0  # seconds since 1970
    entry: dict[str, Any] = field(default_factory=dict)  # of the model's history, once it is measured
    before: dict[str, Any] | None = None  # the entry before it


class Teacher:
    """Starts the training process, listens to it, and tells `changed` whenever there is news."""

    def __init__(self, model: Path, draft: Draft, changed: Callable[[], None]) -> None:
        self.model = model
        self.draft = draft
        self.current = Teaching()
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.current.state == "running"

    async def start(self, epochs: int | None) -> Teaching:
        """Teach the classes of the draft."""
        self.require_idle()
        classes = tuple(self.draft.counts())
        if not classes:
            raise DataError("there is nothing to teach; drop photos of a class first.")
        self._set(Teaching("running", classes=classes, began=time.time()))
        request = {"model": str(self.model), "photos": str(self.draft.write_table()), "epochs": epochs}
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "podnet.studio.worker"), stdin=pipe, stdout=pipe, stderr=pipe, limit=LONGEST_LINE
        )
        self._following = asyncio.create_task(self._follow(self._process, json.dumps(request)))
        return self.current

    def require_idle(self) -> None:
        if self.busy:
            names = ", ".join(self.current.classes)
            raise BusyError(f"it is being taught {names} at the moment; wait until that is done, or stop it.")

    async def stop(self) -> None:
        """End the training process; the model is as it was, and teaching the same again goes on from a checkpoint."""
        if self.busy and self._process is not None:
            self._set(replace(self.current, state="stopped", message="stopped; the model is as it was."))
            with suppress(ProcessLookupError):
                self._process.terminate()
        if self._following is not None:
            await self._following

    async def _follow(self, process: asyncio.subprocess.Process, request: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        with suppress(ConnectionError):
            process.stdin.write(request.encode())
            process.stdin.close()
        said = ""
        async for line in process.stdout:
            news = json.loads(line)
            kind = news.pop("kind")
            if kind == "error":
                said = news["message"]
            elif kind == "learned":
                self.draft.clear()
                self._set(replace(self.current, state="done"))
            elif self.busy:
                self._set(replace(self.current, **news))
        code, words = await process.wait(), (await errors).decode(errors="replace").strip()
        if self.busy:
            self._set(replace(self.current, state="failed", message=said or _ending(code, words)))

    def _set(self, teaching: Teaching) -> None:
        self.current = teaching
        self._changed()


def _ending(code: int, words: str) -> str:
    """How a process that said nothing more came to its end."""
    if code < 0:
        how = f"was killed ({signal.Signals(-code).name})"
    else:
        how = f"ended with code {code}" + (f": {words.splitlines()[-1]}" if words else "")
    return f"the training process {how}. The model is as it was; teach again to go on."
