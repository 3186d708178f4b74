"""Teaching from the page: one training process at a time, followed until it ends in any way."""

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
from podnet.io.files import stamp
from podnet.studio.draft import Draft

STOP_SECONDS = 5  # time for a process to end before it is killed
LONGEST_LINE = 2**24  # bytes of one message: a history entry of a thousand classes


@dataclass(frozen=True)
class Teaching:
    """The progress of the teaching."""

    state: Literal["idle", "running", "done", "failed", "stopped"] = "idle"
    message: str = ""
    classes: tuple[str, ...] = ()
    phase: str = ""
    epoch: int = 0
    epochs: int = 0
    share: float = 0.0  # of the phase that is done
    seconds_left: float | None = None  # of the phase
    note: str = ""  # whether training the network was worth it, if that was tried
    began: float = 0.0  # seconds since 1970
    entry: dict[str, Any] = field(default_factory=dict)  # of the model's history, once it is measured
    before: dict[str, Any] | None = None  # the entry before it
    best: str = "cnn"  # the inference that did better; the following are of it
    interval: list[float] | None = None  # 95 %, of the accuracy on all classes
    measured: str = ""  # that accuracy in words, and on which photos
    worse: list[float] | None = None  # accuracy on the old classes then and now, if it fell beyond chance
    forgotten: list[list[str | float]] = field(default_factory=list)  # classes, accuracy then and now


class Teacher:
    """Starts the training process, reads its messages, and calls `changed` on news."""

    def __init__(self, model: Path, draft: Draft, changed: Callable[[], None]) -> None:
        self.model = model
        self.draft = draft
        self.current = Teaching()
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self, epochs: int | None) -> Teaching:
        """Teach the classes of the draft."""
        self.require_idle()
        photos, table = self.draft.write_table()
        classes = tuple(dict.fromkeys(photo.label for photo in photos))
        if not classes:
            raise DataError("nothing to teach; drop photos of a class first.")
        self._stopped = False
        self._set(Teaching("running", classes=classes, began=time.time()))
        request = {"model": str(self.model), "photos": str(table), "epochs": epochs}
        self._following = asyncio.create_task(self._teach(json.dumps(request), [photo.id for photo in photos]))
        return self.current

    def require_idle(self) -> None:
        if self.current.state == "running":
            names = ", ".join(self.current.classes)
            raise BusyError(f"the model is learning {names}; wait until it is done, or stop it.")

    def forget_outcome(self) -> None:
        """Clear the outcome: the last teaching is undone, accepted or outdated."""
        if self.current.state != "running":
            self._set(Teaching())

    async def stop(self) -> None:
        """End the training process. The model is unchanged; teaching the same again resumes from a checkpoint."""
        self._stopped = True
        for end in ("terminate", "kill"):
            if self._process is not None:
                with suppress(ProcessLookupError):
                    getattr(self._process, end)()
            if self._following is not None:
                await asyncio.wait([self._following], timeout=STOP_SECONDS)

    async def _teach(self, request: str, photos: list[str]) -> None:
        """Run the process until it ends in any way."""
        before = stamp(self.model)
        try:
            learned, message, ending = await self._follow(request)
        except Exception as error:
            learned, message, ending = False, f"teaching failed: {error}", ""
        self._process = None
        learned |= not message and stamp(self.model) != before  # killed after its work, but before it said so
        if learned:
            for key in photos:
                self.draft.remove(key)
            self._set(replace(self.current, state="done"))
        elif self._stopped:
            self._set(replace(self.current, state="stopped", message="stopped; the model is unchanged."))
        else:
            self._set(replace(self.current, state="failed", message=message or ending))

    async def _follow(self, request: str) -> tuple[bool, str, str]:
        """Whether it said that it has learned, the error that it told, and how it ended."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(  # -P: never import from the current folder
            *(sys.executable, "-P", "-m", "podnet.studio.worker"),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=LONGEST_LINE,
        )
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        try:
            with suppress(ConnectionError):
                process.stdin.write(request.encode())
                process.stdin.close()
            learned, said = False, ""
            async for line in process.stdout:
                news = _news(line)
                kind = news.pop("kind", None)
                if kind == "error":
                    said = news["message"]
                elif kind == "learned":
                    learned = True
                elif kind in ("progress", "measured"):
                    self._set(replace(self.current, **news))
        finally:
            if process.returncode is None and not process.stdout.at_eof():
                process.kill()
            code = await process.wait()
            words = (await errors).decode(errors="replace").strip()
        return learned, said, _ending(code, words)

    def _set(self, teaching: Teaching) -> None:
        self.current = teaching
        self._changed()


def _news(line: bytes) -> dict[str, Any]:
    """A message; empty if the line is none, for example cut short when its writer was killed."""
    try:
        news = json.loads(line)
    except ValueError:
        return {}
    return news if isinstance(news, dict) else {}


def _ending(code: int, words: str) -> str:
    """How a process without a final message ended."""
    if code < 0:
        how = f"was killed ({signal.Signals(-code).name})"
    else:
        how = f"ended with code {code}" + (f": {words.splitlines()[-1]}" if words else "")
    return f"the training process {how}. The model is unchanged; teach again to continue."
