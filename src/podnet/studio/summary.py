"""The summary of a run in the list: its state, progress and curves."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from podnet.errors import PodnetError, counted, printable
from podnet.metrics import INFERENCES
from podnet.runs.folder import Run, method_name, tasks_in_words

State = Literal["running", "done", "stopped", "failed", "unreadable"]

TAIL = 8192  # bytes from the end of epochs.jsonl in which its last whole line is found
RECENT = 3  # steps used to estimate the duration of the next


@dataclass(frozen=True)
class Underway:
    """How far a run is in its current task."""

    task: int
    phase: str
    epoch: int  # epochs done
    epochs: int
    seconds_left: float  # of the phase


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers; curves have one value per finished task."""

    id: str
    name: str  # its folder, relative to the one shown
    state: State
    message: str  # the error, or empty
    method: str
    fidelity: str
    dataset: str
    protocol: str
    order: str
    seed: int | None
    started: str  # date and time
    changed: float  # seconds since 1970
    tasks: int | None  # None while unknown
    tasks_done: int
    underway: Underway | None
    seconds_left: float | None  # of all tasks, once a step has shown how long one takes
    seen: list[int]
    curves: dict[str, list[float | None]]  # inference -> accuracy on all classes seen
    average: dict[str, float | None]  # inference -> average incremental accuracy
    forgetting: dict[str, float | None]


@dataclass(frozen=True)
class AllRuns:
    """The list of runs, and what else a page needs at the start."""

    version: str  # of the list
    folder: str
    runs: list[Summary]
    model: str | None  # the name of its file
    model_version: str  # changes with the file


def summarise(key: str, run: Run, name: str, running: bool) -> Summary:
    """The summary of a run from its current files, whatever they contain."""
    try:
        summary = _summarise(key, run, name, running)
        json.dumps(asdict(summary), allow_nan=False)  # a browser could not read it
        return summary
    except Exception as error:  # whatever an untrusted file contains, the other runs are shown
        reason = str(error) if isinstance(error, PodnetError | OSError) else f"its files are damaged ({error!r})"
        return Summary(
            key, printable(name), "unreadable", reason, "", "", "", "", "", None, "", 0.0, None, 0, None, None, [], {},
            {}, {},
        )  # fmt: skip


def _summarise(key: str, run: Run, name: str, running: bool) -> Summary:
    config, results = run.config(), run.results()
    last = results[-1] if results else {}
    epoch = _last_epoch(run.epochs_file)
    tasks = last.get("tasks") or epoch.get("tasks")
    failure = run.failure()
    done = bool(results) and len(results) == tasks
    state: State = "running" if running else "done" if done else "failed" if failure else "stopped"
    underway = _underway(epoch, len(results)) if state != "done" else None
    environments = run.environments()
    return Summary(
        id=key,
        name=printable(name),
        state=state,
        message=failure if state == "failed" and failure else "",
        method=method_name(config),
        fidelity=str(config.get("fidelity") or ""),
        dataset=str(config.get("dataset")),
        protocol=_protocol(config),
        order=str(config.get("order")),
        seed=int(config.get("seed", 0)),
        started=str(environments[0].get("date", "")) if environments else "",
        changed=max(_changed(file) for file in (run.config_file, run.results_file, run.epochs_file)),
        tasks=int(tasks) if tasks else None,
        tasks_done=len(results),
        underway=underway,
        seconds_left=_seconds_left(run, results, tasks) if state == "running" else None,
        seen=[int(line["seen"]) for line in results],
        curves={i: [_rounded(line["accuracy"][i]) for line in results] for i in INFERENCES},
        average={i: _rounded(last["average_incremental_accuracy"][i]) if last else None for i in INFERENCES},
        forgetting={i: _rounded(last["forgetting"][i]) if last else None for i in INFERENCES},
    )


def _protocol(config: dict[str, Any]) -> str:
    """As "50 + 10 per step, 20 exemplars per class"."""
    total, each = config.get("memory_total"), config.get("memory_per_class")
    memory = f"{counted(each or 0, 'exemplar')} per class" if total is None else f"{total} exemplars"
    memory = "no exemplars" if 0 in (total, each) else memory
    steps = "" if config.get("sizes") else " per step"
    visits = f", {config['visits']} visits" if config.get("visits", 1) != 1 else ""
    return f"{tasks_in_words(config).replace('+', ' + ')}{steps}{visits}, {memory}"


def _underway(epoch: dict[str, Any], tasks_done: int) -> Underway | None:
    if not epoch or epoch["task"] < tasks_done:
        return None
    done, epochs = int(epoch["epoch"]) + 1, int(epoch["epochs"])
    left = (epochs - done) * float(epoch["seconds"])
    return Underway(int(epoch["task"]), str(epoch["phase"]), done, epochs, left)


def _last_epoch(path: Path) -> dict[str, Any]:
    """The last complete line of epochs.jsonl, which may have many thousands."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")[:-1]
        last = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return last if isinstance(last, dict) else {}


def _seconds_left(run: Run, results: Sequence[dict[str, Any]], tasks: int | None) -> float | None:
    """Estimated from the last steps: a step resembles earlier steps, but not the first task."""
    steps = [sum(line["seconds"].values()) for line in results[1:]][-RECENT:]
    if not steps or not tasks:
        return None
    since = time.time() - _changed(run.results_file)
    return max(0.0, fmean(steps) * (tasks - len(results)) - since)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
