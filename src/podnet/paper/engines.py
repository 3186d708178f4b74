"""Where runs are performed: in processes on this machine, on a Ray cluster or by Slurm."""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol

from podnet.errors import PodnetError
from podnet.paper.assignment import Assignment, Taken, perform
from podnet.paper.ray_engine import RayEngine
from podnet.paper.slurm_engine import SlurmEngine
from podnet.processes import end_with

MOST_AT_ONCE = 1000  # runs in progress on a cluster, which has its own queue; the usual limit of a Slurm array


class Engine(Protocol):
    """A context manager that performs runs. On an error or Ctrl-C it stops the active ones, which can be resumed."""

    slots: int  # largest number of active runs
    taken: Taken  # the word for a run that it has accepted

    def __enter__(self) -> object: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...

    def submit(self, assignments: Sequence[Assignment]) -> Sequence[Future[str | PodnetError]]:
        """Accept runs that are ready, at most the free slots; returns a future for each, see `perform`."""
        ...


class LocalEngine:
    """Processes on this machine."""

    taken: Taken = "started"

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def __enter__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.slots, context, initializer=_prepare, initargs=(os.getpid(),))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            for process in multiprocessing.active_children():
                process.kill()
        self._pool.shutdown()
        if isinstance(error, BrokenProcessPool):
            raise PodnetError(
                "a run was killed, possibly out of memory; to continue, run the same command again with fewer --jobs."
            ) from error

    def submit(self, assignments: Sequence[Assignment]) -> list[Future[str | PodnetError]]:
        return [self._pool.submit(perform, assignment) for assignment in assignments]


def _prepare(parent: int) -> None:
    """Set up a worker process: it ignores Ctrl-C, because the parent stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def make_engine(
    name: str, jobs: int | None, folder: Path, gpus: float, address: str, slurm: Mapping[str, str]
) -> Engine:
    """The engine of that name; `folder` holds all runs and reports, `slurm` more options for sbatch."""
    if name == "ray":
        return RayEngine(address, jobs or MOST_AT_ONCE, gpus)
    if name == "slurm":
        return SlurmEngine(folder / "slurm", jobs or MOST_AT_ONCE, int(gpus), slurm)
    return LocalEngine(jobs or 1)
