"""A separate process that teaches: if it is killed, the page survives, and the model is unchanged.

Reads one JSON object from its input and writes one per message:
    {"model": FILE, "photos": TABLE, "epochs": N or null}
    {"kind": "progress", ...}, {"kind": "measured", ...}, {"kind": "learned"} or {"kind": "error", "message": ...}

Each but the last two has fields of `podnet.studio.teaching.Teaching`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from podnet.engine.device import choose_device
from podnet.engine.training import Epoch, Iteration, steps
from podnet.errors import PodnetError
from podnet.model.lessons import Learned, teach
from podnet.model.measure import accuracy_words, best_inference, partly_forgotten, worse_on_old_classes
from podnet.model.planning import prepare
from podnet.model.trial import Trial
from podnet.processes import decoding_workers, end_with, keep_freed_memory
from podnet.studio.model_view import interval_of

NEWS_SECONDS = 0.1  # least time between messages


def main() -> int:
    end_with(os.getppid())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # for a clean exit
    request, news = json.load(sys.stdin), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not mix with the messages
    try:
        _teach(request, news)
    except PodnetError as error:
        _tell(news, kind="error", message=str(error))
        return 2
    return 0


def _teach(request: dict[str, Any], news: TextIO) -> None:
    keep_freed_memory()
    path, device = Path(request["model"]), choose_device("auto")
    given = {"epochs": request["epochs"]} if request["epochs"] else {}
    lesson = prepare(path, Path(request["photos"]), given, include_known=True, device=device)
    workers = decoding_workers(photos=len(lesson.todo.training))
    told, pace = 0.0, Pace()
    for record in teach(path, lesson, device, workers, undoable=True):
        if isinstance(record, Learned):
            entry, before = record.entry, record.before
            _tell(
                news,
                kind="measured",
                entry=entry,
                before=before,
                best=best_inference(entry),
                interval=interval_of(entry),
                measured=accuracy_words(entry, bool(entry["training"]), lesson.choice.settings.keep),
                worse=worse_on_old_classes(entry, before),
                forgotten=partly_forgotten(entry, before),
            )
        elif isinstance(record, Trial):
            _tell(news, kind="progress", note=record.words())
        elif isinstance(record, Iteration | Epoch):
            progress = _progress(record, pace)
            if time.monotonic() - told >= NEWS_SECONDS:
                _tell(news, kind="progress", **progress)
                told = time.monotonic()
    _tell(news, kind="learned")


class Pace:
    """How fast a phase goes, from where it was first seen: a resumed one does not begin at zero."""

    def __init__(self) -> None:
        self._last = ("", 0.0)  # phase, share
        self._first = (0.0, 0.0)  # share, moment

    def seconds_left(self, phase: str, share: float, now: float) -> float | None:
        before, last = self._last
        if phase != before or share < last:  # the next phase, or the same one again after a trial
            self._first = (share, now)
        self._last = (phase, share)
        first, began = self._first
        return (now - began) * (1 - share) / (share - first) if share > first else None


def _progress(record: Iteration | Epoch, pace: Pace) -> dict[str, Any]:
    done, total = steps(record)
    share = done / total
    return {
        "phase": record.phase,
        "epoch": done * record.epochs // total,
        "epochs": record.epochs,
        "share": share,
        "seconds_left": pace.seconds_left(record.phase, share, time.monotonic()),
    }


def _tell(news: TextIO, **values: Any) -> None:
    print(json.dumps(values), file=news, flush=True)


if __name__ == "__main__":
    sys.exit(main())
