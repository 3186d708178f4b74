"""Carries out planned runs, several at a time, beside any other process that works on the same folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from podnet import experiment
from podnet.benchmarks.plan import Planned
from podnet.errors import BusyError, PodnetError
from podnet.processes import end_with
from podnet.report.tables import summary

LOOK_AGAIN = 0.5  # seconds between two looks at the runs of other processes


@dataclass(frozen=True)
class Outcome:
    """What became of a run; "elsewhere": another process has it."""

    planned: Planned
    status: Literal["started", "done", "elsewhere", "failed"]
    message: str = ""


def carry_out(planned: Sequence[Planned], jobs: int, resume: bool = True) -> Iterator[Outcome | None]:
    """Run what is not finished, equal runs and equal first tasks once. Yields what happens, and None now and then.

    Each run is locked while it is written: one that another process has is passed over, and looked at again later.
    """
    waiting = _to_do(planned, resume)
    if not waiting:
        return
    active: dict[Future[str], Planned] = {}
    failed: dict[Path, str] = {}  # why, of each folder
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_prepare, initargs=(os.getpid(),)) as pool:
        try:
            while waiting or active:
                for run in list(waiting):
                    if len(active) == jobs:
                        break
                    if resume and not _is_ready(run, failed):
                        continue
                    waiting.remove(run)
                    if why := failed.get(run.first_task.record.folder):
                        yield Outcome(run, "failed", why)
                    elif _is_taken(run):
                        waiting.append(run)
                    elif not (resume and run.finished()):
                        active[pool.submit(_perform, run, resume)] = run
                        yield Outcome(run, "started")
                if not active:
                    time.sleep(LOOK_AGAIN)
                for future in wait(active, LOOK_AGAIN, FIRST_COMPLETED).done:
                    outcome = _outcome(run := active.pop(future), future)
                    if outcome.status == "elsewhere":
                        waiting.append(run)
                    elif outcome.status == "failed":
                        failed[run.record.folder] = outcome.message
                    yield outcome
                yield None
        except BaseException:  # Ctrl-C too: what runs was written down and can be resumed
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _to_do(planned: Sequence[Planned], resume: bool) -> list[Planned]:
    """The runs to carry out, each behind the run of its first task; one that starts again does all of it again."""
    runs: dict[Path, Planned] = {}
    for run in planned:
        if resume and not run.record.exists():
            runs.setdefault(run.first_task.record.folder, run.first_task)
        if not (resume and run.finished()):
            runs.setdefault(run.record.folder, run)
    return list(runs.values())


def _is_ready(run: Planned, failed: Mapping[Path, str]) -> bool:
    first = run.first_task
    return run.tasks == 1 or run.record.exists() or first.finished() or first.record.folder in failed


def _outcome(run: Planned, future: Future[str]) -> Outcome:
    try:
        message = future.result()
    except BusyError:
        return Outcome(run, "elsewhere")
    except BrokenProcessPool as error:
        raise PodnetError(
            "a run was killed, perhaps for want of memory; give the same command again to go on, with fewer --jobs."
        ) from error
    except Exception as error:  # the other runs go on
        kind = "" if isinstance(error, PodnetError) else f"{type(error).__name__}: "
        return Outcome(run, "failed", f"{kind}{error}")
    return Outcome(run, "done", message)


def _is_taken(run: Planned) -> bool:
    try:
        with run.record.locked():
            return False
    except BusyError:
        return True


def _perform(planned: Planned, resume: bool) -> str:
    """In a process of the pool: the whole run, and its summary."""
    first = planned.first_task
    begin = first.record if resume and planned.tasks > 1 and first.finished() else None
    for _ in experiment.run(planned.experiment, planned.record, "resume" if resume else "replace", begin):
        pass
    return summary(planned.record.results())


def _prepare(parent: int) -> None:
    """Of a worker process: Ctrl-C is for the parent, which stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
