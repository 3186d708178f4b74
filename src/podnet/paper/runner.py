"""Carry out planned runs, several at a time; other processes may work on the same folder."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from podnet.errors import BusyError, PodnetError
from podnet.paper.assignment import assign
from podnet.paper.engines import Engine
from podnet.paper.plan import Planned
from podnet.runs.folder import FIRST_TASK_DONE

LOOK_AGAIN = 0.5  # seconds between checks of the runs of other processes


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run; "elsewhere": another process is working on it."""

    planned: Planned
    status: Literal["started", "submitted", "done", "elsewhere", "failed"]
    message: str = ""


def carry_out(planned: Sequence[Planned], engine: Engine, resume: bool = True) -> Iterator[Outcome | None]:
    """Run what is not finished, equal runs and first tasks only once. Yields outcomes, and None from time to time.

    A run is locked while it is written. Runs locked by another process are skipped and checked again later.
    """
    queue = _Queue(_to_do(planned, resume), resume)
    if not queue.waiting:
        return
    queue.clear_outdated()
    with engine:
        while queue.waiting or queue.active:
            ready: list[Planned] = []
            yield from queue.choose(ready, engine.slots)
            if ready:
                futures = engine.submit([assign(run, share=resume) for run in ready])
                queue.active |= zip(futures, ready, strict=True)
                yield from (Outcome(run, engine.taken) for run in ready)
            if not queue.active:
                time.sleep(LOOK_AGAIN)
            yield from queue.finished()
            yield None


@dataclass
class _Queue:
    """The unfinished runs and their state."""

    waiting: list[Planned]
    resume: bool
    active: dict[Future[str | PodnetError], Planned] = field(default_factory=dict)
    failed: dict[Path, str] = field(default_factory=dict)  # folder -> reason
    outdated: set[Path] = field(default_factory=set)  # folders to clear before a run
    told: set[Path] = field(default_factory=set)  # folders that another process is writing

    def clear_outdated(self) -> None:
        """Clear old results first, so that an interrupted call leaves none next to new ones."""
        again = () if self.resume else self.waiting
        old = [each for run in again for each in (run, run.first_task) if each.record.exists()]
        self.outdated = {run.record.folder for run in [*old, *filter(_lost_its_training, self.waiting)]}
        for run in old:
            with suppress(PodnetError):  # `choose` tells it
                _is_taken(run, self.outdated)

    def choose(self, ready: list[Planned], slots: int) -> Iterator[Outcome]:
        """Move runs that can start into `ready`, until all slots are taken; yield the outcome of those that cannot."""
        for run in list(self.waiting):
            if len(self.active) + len(ready) == slots:
                break
            if self.resume and not _is_ready(run, self.failed):
                continue
            self.waiting.remove(run)
            why = None if run.record.exists() else self.failed.get(run.first_task.record.folder)
            try:
                taken = not why and _is_taken(run, self.outdated)
            except PodnetError as error:  # its folder cannot be written; the others go on
                why, taken = str(error), False
                self.failed[run.record.folder] = why
            if why:
                yield Outcome(run, "failed", why)
            elif taken:
                self.waiting.append(run)
                if run.record.folder not in self.told:
                    self.told.add(run.record.folder)
                    yield Outcome(run, "elsewhere")
            elif not (self.resume and run.finished()):
                ready.append(run)

    def finished(self) -> Iterator[Outcome]:
        """The outcomes of runs that have ended."""
        for future in wait(self.active, LOOK_AGAIN, FIRST_COMPLETED).done:
            outcome = _outcome(run := self.active.pop(future), future.result())
            if outcome.status == "elsewhere":
                self.waiting.append(run)
                self.told.add(run.record.folder)
            elif outcome.status == "failed":
                self.failed[run.record.folder] = outcome.message
            yield outcome


def _to_do(planned: Sequence[Planned], resume: bool) -> list[Planned]:
    """The runs to carry out, each after the run of its first task; without `resume` everything is run again."""
    runs: dict[Path, Planned] = {}
    for run in planned:
        if resume and run.has_first_task and not run.record.exists():
            runs.setdefault(run.first_task.record.folder, run.first_task)
        if not (resume and run.finished()):
            runs.setdefault(run.record.folder, run)
    return list(runs.values())


def _lost_its_training(run: Planned) -> bool:
    """Whether only the last checkpoint of a first task is left: then no run can start from it or resume it."""
    return run.tasks == 1 and [path.name for path in run.record.checkpoint_files()] == [FIRST_TASK_DONE]


def _is_ready(run: Planned, failed: Mapping[Path, str]) -> bool:
    first = run.first_task
    return not run.has_first_task or run.record.exists() or first.finished() or first.record.folder in failed


def _outcome(run: Planned, result: str | PodnetError) -> Outcome:
    if isinstance(result, BusyError):
        return Outcome(run, "elsewhere")
    return Outcome(run, "failed" if isinstance(result, PodnetError) else "done", str(result))


def _is_taken(run: Planned, outdated: set[Path]) -> bool:
    """Whether another process is writing the run. If not, outdated results are cleared, but only once: a run that is
    lost on the way may be tried again and then resumes.
    """
    folder = run.record.folder
    try:
        with run.record.locked():
            if folder in outdated:
                run.record.clear()
                outdated.remove(folder)
            return False
    except BusyError:
        return True
