"""Growth: a run of 2,000 tiny tasks, whose folder and memory must grow linearly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from forked import forked
from notes import Notes

TASKS = 2000


def many_tasks(notes: Notes, scratch: Path) -> None:
    notes.attempt(f"run of {TASKS} tasks", _grows, scratch, TASKS)


def _grows(scratch: Path, tasks: int) -> str | None:
    """What grew faster than the tasks: from the middle to the end at most as much as from the start to the middle."""
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (tasks, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(tasks)
    np.savez(scratch / "many.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    code = forked(lambda: _run(scratch, tasks), scratch / "output", seconds=24 * 3600)
    if code:
        return f"exit code {code}: {(scratch / 'output').read_text()[-300:]}"
    seen = [json.loads(line) for line in (scratch / "sizes").read_text().splitlines()]
    print(json.dumps(seen), flush=True)
    by_task = {line["task"]: line for line in seen}
    for what in ("results", "predictions", "folder", "memory"):
        start, middle, end = (by_task[task][what] for task in (tasks // 20 - 1, tasks // 2 - 1, tasks - 1))
        if end - middle > 1.5 * (middle - start) + 20e6 * (what == "memory"):
            return f"{what} grew from {start:,} to {middle:,} and then to {end:,} bytes"
    return None


def _run(scratch: Path, tasks: int) -> int:
    from podnet.runs.config import resolve
    from podnet.runs.folder import Run
    from podnet.runs.loop import TaskDone, run

    options = {"method": "ridge", "backbone": "resnet32", "keep": "sums", "dataset": "npz", "base": 1, "increment": 1}
    options |= {"data_path": str(scratch / "many.npz"), "threads": 1, "device": "cpu"}
    record = Run(scratch / "run")
    with open(scratch / "sizes", "w") as sizes:
        for each in run(resolve(options), record):
            if isinstance(each, TaskDone) and (each.result["task"] + 1) % (tasks // 20) == 0:
                line = {"task": each.result["task"], "results": record.results_file.stat().st_size}
                line |= {"predictions": _size(record.predictions), "folder": _size(record.folder), "memory": _memory()}
                sizes.write(json.dumps(line) + "\n")
                sizes.flush()
    return 0


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
