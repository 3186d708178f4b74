"""A separate process that teaches: if it is killed, the page survives, and the model is unchanged.

Reads one JSON object from its input and writes one per message:
    {"model": FILE, "photos": TABLE, "epochs": N or null}
    {"kind": "progress", ...}, {"kind": "measured", ...}, {"kind": "learned"} or {"kind": "error", "message": ...}
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
from podnet.model.lessons import Learned, Record, prepare, teach
from podnet.model.measure import partly_forgotten
from podnet.processes import decoding_workers, end_with, keep_freed_memory

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
    told = 0.0
    for record in teach(path, lesson, device, workers, undoable=True):
        if isinstance(record, Learned):
            forgotten = partly_forgotten(record.entry, record.before)
            _tell(news, kind="measured", entry=record.entry, before=record.before, forgotten=forgotten)
        elif time.monotonic() - told >= NEWS_SECONDS:
            _tell(news, kind="progress", **_progress(record))
            told = time.monotonic()
    _tell(news, kind="learned")


def _progress(record: Record) -> dict[str, Any]:
    if not isinstance(record, Iteration | Epoch):
        return {}
    done, total = steps(record)
    epoch = done * record.epochs // total
    return {"phase": record.phase, "epoch": epoch, "epochs": record.epochs, "share": done / total}


def _tell(news: TextIO, **values: Any) -> None:
    print(json.dumps(values), file=news, flush=True)


if __name__ == "__main__":
    sys.exit(main())
