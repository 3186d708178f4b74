"""A run folder: the record on disk of one experiment. Writing and reading it; no torch here.

    config.yaml         the resolved configuration, in the words of the command line
    environment.json    versions, commit, machine, command; one entry for each time it was started or resumed
    method.py           the user's own method, as it was when the run began
    results.jsonl       one object a task
    epochs.jsonl        one object an epoch: losses, learning rate, seconds
    failure.json        what ended a run that failed; gone when it goes on
    tensorboard/        event files, where they were asked for
    predictions/        of the test images after each task, for confusion matrices
    checkpoints/        the newest states of the learner
    exemplars/          photos that are too many for the memory, a pack a task
    report.html         everything on one page; curve.png, curve.svg and confusion.png are its pictures

JSON-lines files only grow: a line is there whole or, after a crash, ignored and cut off by the next writer.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from podnet.errors import ConfigError, PodnetError
from podnet.io.files import UNFINISHED, is_locked, locked, read_lines, write_atomically

FILES = (
    "config.yaml",  # first to come, and first to go when a run is cleared
    "environment.json",
    "method.py",
    "results.jsonl",
    "epochs.jsonl",
    "failure.json",
    "report.html",
    "curve.png",
    "curve.svg",
    "confusion.png",
)
# What a run may go on with otherwise than it began: it decides no number, but for rounding and the statistics of
# BatchNorm that several processes may have on their own.
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
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, where it was built: ten times faster
FIRST_TASK_DONE = "0000-end.safetensors"  # the checkpoint after the first task


def method_name(config: Mapping[str, Any]) -> str:
    """The method of a configuration, short: of a user's FILE.py:CLASS the class."""
    return str(config.get("method")).rpartition(":")[2]


def folder_name(options: Mapping[str, Any]) -> str:
    """A folder's name that tells a run from others at a glance, from its options."""
    order = Path(options["order"]).stem.replace(":", "").replace(",", "_")[:40]
    protocol = f"{options['base'] or 'half'}+{options['increment']}-{order}-seed{options['seed']}"
    return f"{method_name(options)}-{options['dataset']}-{protocol}"


class Run:
    """The files of one run."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def results_file(self) -> Path:
        return self.folder / "results.jsonl"

    @property
    def epochs_file(self) -> Path:
        return self.folder / "epochs.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def exemplars(self) -> Path:
        return self.folder / "exemplars"

    @property
    def predictions(self) -> Path:
        return self.folder / "predictions"

    @property
    def events(self) -> Path:
        return self.folder / "tensorboard"

    def exists(self) -> bool:
        """Whether anything of a run is here, its configuration or what it made."""
        return any((self.folder / name).exists() for name in FILES)

    def config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        if not self.config_file.exists():
            raise ConfigError(f"{self.folder} holds no run to resume: there is no {self.config_file.name} in it.")
        try:
            loaded = yaml.load(self.config_file.read_bytes(), Loader=SAFE_LOADER)
        except (yaml.YAMLError, UnicodeDecodeError):
            loaded = None
        if not isinstance(loaded, dict):
            raise PodnetError(f"{self.config_file} is damaged: it should hold options, one 'name: value' a line.")
        return loaded

    def write_config(self, config: Mapping[str, Any]) -> None:
        """The first file of a run: with it there is something to resume."""
        write_atomically(self.config_file, yaml.safe_dump(dict(config), sort_keys=False))

    @property
    def method_file(self) -> Path:
        return self.folder / "method.py"

    def keeps_method(self, file: Path) -> bool:
        """Keep the file of a user's own method as it is when the run begins; False if it has changed since."""
        if not self.method_file.exists():
            write_atomically(self.method_file, file.read_bytes())
        return self.method_file.read_bytes() == file.read_bytes()

    def require_unchanged_method(self, file: Path) -> None:
        """Refuse a file of a user's own method that was edited since the run began."""
        if not self.keeps_method(file):
            raise ConfigError(
                f"{file} was changed since the run in {self.folder} began, so its numbers would come from two methods; "
                f"put back {self.method_file}, start another run, or go on with --allow-changed-method."
            )

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """One more entry: a run has as many as it was started and resumed."""
        path = self.folder / "environment.json"
        earlier = json.loads(path.read_text()) if path.exists() else []
        write_atomically(path, json.dumps([*earlier, environment], indent=2) + "\n")

    def results(self) -> list[dict[str, Any]]:
        """One object a task, those that were written whole."""
        return read_lines(self.results_file)

    def epochs(self) -> list[dict[str, Any]]:
        return read_lines(self.epochs_file)

    @property
    def failure_file(self) -> Path:
        return self.folder / "failure.json"

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Leave a note of an error that ends the run, for those who look at its folder later."""
        self.failure_file.unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            message = str(error) if isinstance(error, PodnetError) else f"{type(error).__name__}: {error}"
            note = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "message": message}
            with suppress(PodnetError):  # a full disk may be what ended it
                write_atomically(self.failure_file, json.dumps(note) + "\n")
            raise

    def failure(self) -> str | None:
        """What ended the run, if an error did."""
        try:
            return str(json.loads(self.failure_file.read_bytes())["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_being_written(self) -> bool:
        """Whether a process is at work on it."""
        return is_locked(self.folder / ".lock")

    def environments(self) -> list[dict[str, Any]]:
        """One entry for each time it was started or resumed; none where they cannot be read."""
        try:
            recorded = json.loads((self.folder / "environment.json").read_bytes())
        except (OSError, ValueError):
            return []
        entries = recorded if isinstance(recorded, list) else [recorded]
        return [entry for entry in entries if isinstance(entry, dict)]

    def checkpoint_files(self) -> list[Path]:
        """Newest first."""
        return sorted(self.checkpoints.glob("*.safetensors"), reverse=True)

    def trained_first_task(self) -> Path | None:
        """Of a finished run of its first task: the checkpoint after training, before exemplars were chosen."""
        newest, *before = [path.name for path in self.checkpoint_files()] or [""]
        return self.checkpoints / before[0] if newest == FIRST_TASK_DONE and before else None

    def begin_as(self, other: Run, trained: Path, tasks: int) -> None:
        """Take over the training of the first of `tasks` tasks; the checkpoint comes last and makes it count."""
        lines = [json.dumps(line | {"tasks": tasks}) + "\n" for line in other.epochs()]
        write_atomically(self.epochs_file, "".join(lines))
        write_atomically(self.folder / "environment.json", (other.folder / "environment.json").read_bytes())
        self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.checkpoints / trained.name, trained.read_bytes())

    def clear(self) -> None:
        """Remove what an earlier run left, its configuration first: without one the folder is no run."""
        for name in FILES:
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.checkpoints, self.predictions):
            for path in folder.glob("*.safetensors"):
                path.unlink()
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.events, self.exemplars):
            shutil.rmtree(folder, ignore_errors=True)
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove what killed processes were writing; only under the lock."""
        for folder in (self.folder, self.checkpoints, self.predictions, self.exemplars):
            for path in folder.glob(f".*{UNFINISHED}"):
                path.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time may write a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(
            self.folder / ".lock", f"another process is writing {self.folder}; wait for it or choose another --output."
        ):
            yield
