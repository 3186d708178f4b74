"""Runs as Slurm jobs, one array for all that are ready; a preempted job is queued again and resumes."""

import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from podnet.errors import ConfigError, PodnetError, importing
from podnet.paper.assignment import Assignment, Taken, perform

MINUTES = 240  # default time limit of a job: few partitions allow less, and a run continues in its next job
TIMES_QUEUED_AGAIN = 200  # at most: enough for a week in jobs of an hour, but stops a run that makes no progress
LOOK_AGAIN = 1.0  # seconds between checks for results of jobs
ASK_AGAIN = 20.0  # seconds between queries to Slurm for killed jobs
OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "GONE")


class Job:
    """The work of a job. When Slurm warns of a timeout or preemption, the job is queued again."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._process = 0

    def __call__(self) -> str | PodnetError:
        self._process = os.getpid()
        return perform(self.assignment)

    def checkpoint(self) -> Any:
        """Called by submitit (hence the name) at the warning, for what to do next. At most one epoch is lost."""
        from submitit.helpers import DelayedSubmission

        if os.getpid() != self._process:  # a decoding process gets the warning too and must not queue the job again
            os._exit(0)
        return DelayedSubmission(Job(self.assignment))


class SlurmEngine:
    """Slurm, through submitit; `cluster` "local" performs the jobs in processes on this machine, for tests."""

    taken: Taken = "submitted"

    def __init__(
        self,
        folder: Path,
        slots: int,
        gpus: int,
        options: Mapping[str, str],
        cluster: Literal["slurm", "local"] = "slurm",
    ) -> None:
        with importing("slurm", "--engine slurm needs submitit"):
            import submitit
        if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise ConfigError(
                "--engine slurm needs sbatch, which is not on this machine; run the command where Slurm is installed."
            )
        self.slots = slots
        self._submitit = submitit
        self._cluster = cluster
        self._folder = folder
        self._shared = {
            "name": "podnet",
            "timeout_min": MINUTES,
            "gpus_per_node": gpus or None,
            "slurm_array_parallelism": slots,
            "slurm_additional_parameters": {"requeue": True} | {k.replace("-", "_"): v for k, v in options.items()},
        }
        self._under_way: dict[Future[str | PodnetError], Any] = {}  # and its job
        self._ended: dict[str, str] = {}  # jobs that were over at the last query
        self._left = threading.Event()

    def __enter__(self) -> None:
        logging.getLogger("submitit").setLevel(logging.ERROR)
        again = {"slurm_max_num_timeout": TIMES_QUEUED_AGAIN} if self._cluster == "slurm" else {}
        self._executor = self._submitit.AutoExecutor(self._folder, self._cluster, **again)
        self._left.clear()
        threading.Thread(target=self._watch, daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._left.set()
        for job in list(self._under_way.values()):
            job.cancel(check=False)

    def submit(self, assignments: Sequence[Assignment]) -> list[Future[str | PodnetError]]:
        futures = {assignment.folder: Future[str | PodnetError]() for assignment in assignments}
        by_cores = sorted(assignments, key=lambda assignment: assignment.cores)
        for cores, alike in groupby(by_cores, key=lambda assignment: assignment.cores):
            group = list(alike)
            for assignment, job in zip(group, self._submit_array(group, cores), strict=True):
                self._under_way[futures[assignment.folder]] = job
        return list(futures.values())

    def _submit_array(self, assignments: Sequence[Assignment], cores: int) -> list[Any]:
        self._executor.update_parameters(cpus_per_task=cores, **self._shared)
        try:
            with self._executor.batch():
                return [self._executor.submit(Job(assignment)) for assignment in assignments]
        except self._submitit.core.utils.FailedJobError as error:
            raise PodnetError(f"Slurm rejected the job: {_last_line(str(error))}") from error

    def _watch(self) -> None:
        """In a thread: pass on the results of jobs."""
        try:
            asked = time.monotonic()
            while not self._left.wait(LOOK_AGAIN):
                over: dict[str, str] = {}
                if self._under_way and self._cluster == "slurm" and time.monotonic() - asked > ASK_AGAIN:
                    over = self._over()
                    asked = time.monotonic()
                for future, job in list(self._under_way.items()):
                    if job.paths.result_pickle.exists() or (self._cluster == "local" and job.done()):
                        self._hand_over(future, _result(job))
                    elif job.job_id in over:
                        self._hand_over(future, _killed(job, over[job.job_id]))
        except Exception as error:  # otherwise the error would be lost in this thread
            for future in list(self._under_way):
                future.set_exception(error)

    def _over(self) -> dict[str, str]:
        """Jobs that have ended, and how; long enough ago that their results must be visible here."""
        before = self._ended
        self._ended = _ended([job.job_id for job in list(self._under_way.values())])
        return {job: state for job, state in self._ended.items() if job in before}

    def _hand_over(self, future: Future[str | PodnetError], result: str | PodnetError) -> None:
        del self._under_way[future]
        future.set_result(result)


def _ended(jobs: Sequence[str]) -> dict[str, str]:
    """The jobs that are over, with their Slurm state. Not every Slurm keeps records of its jobs (sacct), but all have
    the queue, where a job stays for minutes after its end.
    """
    command = ["squeue", "--me", "--array", "--states=all", "--noheader", "--format=%i %T"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):  # Slurm's controller is temporarily unreachable
        return {}
    states = {job: state.strip() for job, _, state in (line.partition(" ") for line in asked.stdout.splitlines())}
    return {job: state for job in jobs if (state := states.get(job, "GONE")) in OVER}


def _result(job: Any) -> str | PodnetError:
    if not job.paths.result_pickle.exists():
        return _killed(job, job.state)
    try:
        result: str | PodnetError = job.result()
        return result
    except Exception:  # podnet is missing there, or another version
        return PodnetError(f"Slurm job {job.job_id} failed; the reason is in {job.paths.stderr}.")


def _killed(job: Any, state: str) -> PodnetError:
    return PodnetError(
        f"Slurm job {job.job_id} was killed ({state}), see {job.paths.stderr}; to continue, run the same command "
        "again, if necessary with more memory (--slurm mem=16G)."
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")
