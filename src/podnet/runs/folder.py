"""A run folder: the record of one experiment on disk, for writing and reading; no torch here.

    config.yaml         the resolved configuration, named as on the command line
    environment.json    versions, commit, machine, command; one entry per start or resume
    method.py           the user-defined method, as it was when the run began
    results.jsonl       one object per task; beyond 100 tasks few have the accuracy on each task (see `history`)
    epochs.jsonl        one object per epoch: losses, learning rate, seconds
    failure.json        the error that ended a failed run; removed on resume
    tensorboard/        event files, if requested with --logger
    metrics.csv         the numbers of both files one a line, likewise
    wandb/, mlflow/     the files of these programs, likewise
    predictions/        for the test images after each task, for confusion matrices; beyond 100 tasks, after few
    checkpoints/        the newest states of the learner, and the one after the training of the first task
    exemplars/          photos that do not fit into memory, one pack per task
    report.html         everything on one page; curve.png, curve.svg and confusion.png are its pictures

JSON-lines files only grow. A line cut short by a crash is ignored, and removed by the next writer.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from podnet.errors import ConfigError, PodnetError, printable
from podnet.io.files import UNFINISHED, is_locked, locked, read_lines, write_atomically
from podnet.io.options import read_options
from podnet.runs.history import is_recorded

FILES = (
    "config.yaml",  # written first, and removed first when a run is cleared
    "environment.json",
    "method.py",
    "results.jsonl",
    "epochs.jsonl",
    "failure.json",
    "metrics.csv",
    "report.html",
    "curve.png",
    "curve.svg",
    "confusion.png",
)
# Options that may change on resume. They affect results only by rounding, and by the BatchNorm statistics if
# several processes keep their own.
CHANGEABLE = (
    "data_path",
    "device",
    "devices",
    "num_nodes",
    "sync_batchnorm",
    "exemplar_megabytes",
    "threads",
    "workers",
    "unreadable",
    "checkpoint_seconds",
)
MOST_SIZES = 8  # in the name of a folder
FIRST_TASK_DONE = "0000-end.safetensors"  # the checkpoint after the first task


def method_name(config: Mapping[str, Any]) -> str:
    """The short name of a configuration's method: for a user-defined FILE.py:CLASS, the class."""
    return str(config.get("method")).rpartition(":")[2]


def folder_name(options: Mapping[str, Any]) -> str:
    """A folder name that distinguishes runs at a glance, from their options."""
    order = Path(options["order"]).stem.replace(":", "").replace(",", "_")[:40]
    visits = f"-{visits}visits" if (visits := options.get("visits", 1)) > 1 else ""
    protocol = f"{tasks_in_words(options)}{visits}-{order}-seed{options['seed']}"
    return f"{method_name(options)}-{options['dataset']}-{protocol}"


def tasks_in_words(config: Mapping[str, Any]) -> str:
    """The classes of the tasks: "50+10" is 50, then 10 in each step; sizes are all there, up to a few."""
    sizes = config.get("sizes")
    if isinstance(sizes, list) and sizes:
        left = len(sizes) - MOST_SIZES
        return "+".join([*map(str, sizes[:MOST_SIZES]), *([f"{left}more"] if left > 0 else [])])
    return f"{config.get('base') or 'half'}+{config.get('increment')}"


def _moment(checkpoint: Path) -> tuple[float, ...]:
    """Task, phase and epoch, or the end of the task, as numbers: as text, task 10,000 would be before 9,999."""
    numbers = tuple(map(int, re.findall(r"\d+", checkpoint.stem)))
    return (*numbers, math.inf) if checkpoint.stem.endswith("end") else numbers


class Run:
    """The files of one run."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config_file = self.folder / "config.yaml"
        self.environment_file = self.folder / "environment.json"
        self.method_file = self.folder / "method.py"
        self.results_file = self.folder / "results.jsonl"
        self.epochs_file = self.folder / "epochs.jsonl"
        self.failure_file = self.folder / "failure.json"
        self.table_file = self.folder / "metrics.csv"
        self.lock_file = self.folder / ".lock"
        self.events = self.folder / "tensorboard"
        self.predictions = self.folder / "predictions"
        self.checkpoints = self.folder / "checkpoints"
        self.exemplars = self.folder / "exemplars"

    def exists(self) -> bool:
        """Whether the folder holds anything of a run, its configuration or its output."""
        return any((self.folder / name).exists() for name in FILES)

    def config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        if not self.config_file.exists():
            raise ConfigError(f"{self.folder} contains no run: there is no {self.config_file.name} in it.")
        try:
            return read_options(self.config_file)
        except ValueError as error:
            words = "it must contain options, one 'name: value' per line"
            raise PodnetError(f"{self.config_file} is damaged: {words} ({printable(str(error))[:200]}).") from error

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the first file of a run; from then on it can be resumed."""
        write_atomically(self.config_file, yaml.safe_dump(dict(config), sort_keys=False))

    def keeps_method(self, file: Path) -> bool:
        """Keep a copy of a user-defined method when the run begins; False if the file has changed since."""
        if not self.method_file.exists():
            write_atomically(self.method_file, file.read_bytes())
        return self.method_file.read_bytes() == file.read_bytes()

    def require_unchanged_method(self, file: Path) -> None:
        """Refuse a user-defined method whose file was edited since the run began."""
        if not self.keeps_method(file):
            raise ConfigError(
                f"{file} was changed after the run in {self.folder} started, so results would come from two methods; "
                f"restore it from {self.method_file}, start a new run, or continue with --allow-changed-method."
            )

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Add an entry; a run has one for each start and resume."""
        write_atomically(self.environment_file, json.dumps([*self.environments(), environment], indent=2) + "\n")

    def results(self) -> list[dict[str, Any]]:
        """One object per task; incomplete lines are left out."""
        return read_lines(self.results_file)

    def is_finished(self) -> bool:
        """Whether all tasks have results."""
        results = self.results()
        return bool(results) and len(results) == results[-1].get("tasks")

    def epochs(self) -> list[dict[str, Any]]:
        return read_lines(self.epochs_file)

    def predictions_file(self, task: int) -> Path:
        return self.predictions / f"task-{task:04d}.safetensors"

    def drop_predictions(self, task: int, tasks: int) -> None:
        """After a task, remove the predictions of the task before unless they are recorded for good."""
        if task and not is_recorded(task - 1, tasks):
            self.predictions_file(task - 1).unlink(missing_ok=True)

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Write down an error that ends the run, for whoever looks at the folder later."""
        self.failure_file.unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            message = str(error) if isinstance(error, PodnetError) else f"{type(error).__name__}: {error}"
            note = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "message": message}
            if self.config_file.exists():  # otherwise nothing has begun that could be resumed
                with suppress(PodnetError):  # a full disk may be the cause
                    write_atomically(self.failure_file, json.dumps(note) + "\n")
            raise

    def failure(self) -> str | None:
        """The error that ended the run, if any."""
        try:
            return str(json.loads(self.failure_file.read_bytes())["message"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def is_being_written(self) -> bool:
        """Whether a process is writing this run."""
        return is_locked(self.lock_file)

    def environments(self) -> list[dict[str, Any]]:
        """One entry for each start or resume; none if they cannot be read."""
        try:
            recorded = json.loads(self.environment_file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return []
        entries = recorded if isinstance(recorded, list) else [recorded]
        return [entry for entry in entries if isinstance(entry, dict)]

    def checkpoint_files(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted(self.checkpoints.glob("*.safetensors"), key=_moment, reverse=True)

    def trained_first_task(self) -> Path | None:
        """The checkpoint after the training of the first task, before exemplars were chosen; None until it is done.

        It is done if there is a later checkpoint or if this one is of the last epoch, as in a published base network.
        """
        files = self.checkpoint_files()
        of_first = [path for path in files if _moment(path) < _moment(Path(FIRST_TASK_DONE))]
        done = bool(of_first) and (of_first[0] != files[0] or self._has_all_epochs(of_first[0]))
        return of_first[0] if done else None

    def _has_all_epochs(self, checkpoint: Path) -> bool:
        return self.config_file.exists() and _moment(checkpoint)[-1] == self.config().get("epochs")

    def begin_as(self, other: Run, trained: Path, tasks: int) -> None:
        """Copy the training of the first of `tasks` tasks. The checkpoint is copied last: it makes the copy valid."""
        lines = [json.dumps(line | {"tasks": tasks}) + "\n" for line in other.epochs() if line["task"] == 0]
        write_atomically(self.epochs_file, "".join(lines))
        write_atomically(self.environment_file, json.dumps(other.environments(), indent=2) + "\n")
        self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.checkpoints / trained.name, trained.read_bytes())

    def clear(self) -> None:
        """Remove an earlier run, its configuration first: without one the folder is not a run."""
        for name in FILES:
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.checkpoints, self.predictions):
            for path in folder.glob("*.safetensors"):
                path.unlink()
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.events, self.folder / "wandb", self.folder / "mlflow", self.exemplars):
            shutil.rmtree(folder, ignore_errors=True)
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove partial files of killed processes; call only under the lock."""
        for path in self.unfinished():
            path.unlink()

    def unfinished(self) -> list[Path]:
        """Files that are being written, or were when their process was killed."""
        folders = (self.folder, self.checkpoints, self.predictions, self.exemplars)
        return [path for folder in folders for path in folder.glob(f".*{UNFINISHED}")]

    def locked(self) -> AbstractContextManager[None]:
        """Only one process at a time may write a run."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PodnetError(f"cannot make {self.folder}: {error.strerror}; choose another --output.") from error
        return locked(
            self.lock_file, f"another process is writing {self.folder}; wait until it ends or choose another --output."
        )
