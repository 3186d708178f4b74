"""A run folder: the record on disk of one experiment. Writing and reading it; no torch here.

    config.yaml         the resolved configuration, in the words of the command line
    environment.json    versions, commit, machine
    results.jsonl       one object a task
    epochs.jsonl        one object an epoch: losses, learning rate, seconds
    predictions/        of the test images after each task, for confusion matrices
    checkpoints/        the newest states of the learner
    report.html         everything on one page; curve.png, curve.svg and confusion.png are its pictures

JSON-lines files only grow: a line is there whole or, after a crash, ignored and cut off by the next writer.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from podnet.errors import ConfigError, PodnetError
from podnet.files import read_lines, write_atomically


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
    def predictions(self) -> Path:
        return self.folder / "predictions"

    def exists(self) -> bool:
        return self.config_file.exists()

    def config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        if not self.exists():
            raise ConfigError(f"{self.folder} holds no run to resume: there is no {self.config_file.name} in it.")
        loaded = yaml.safe_load(self.config_file.read_text())
        if not isinstance(loaded, dict):
            raise PodnetError(f"{self.config_file} is damaged: it should hold a mapping of options.")
        return loaded

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Written last when a run is created: a folder with a configuration is a run."""
        write_atomically(self.config_file, yaml.safe_dump(dict(config), sort_keys=False))

    def results(self) -> list[dict[str, Any]]:
        """One object a task, those that were written whole."""
        return read_lines(self.results_file)

    def epochs(self) -> list[dict[str, Any]]:
        return read_lines(self.epochs_file)

    def checkpoint_files(self) -> list[Path]:
        """Newest first."""
        return sorted(self.checkpoints.glob("*.safetensors"), reverse=True)

    def clear(self) -> None:
        """Remove what an earlier run left, its configuration first: without one the folder is no run."""
        self.config_file.unlink(missing_ok=True)
        for name in ("results.jsonl", "epochs.jsonl", "report.html", "curve.png", "curve.svg", "confusion.png"):
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.checkpoints, self.predictions):
            for path in folder.glob("*.safetensors"):
                path.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time may write a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PodnetError(
                    f"another process is writing {self.folder}; wait for it or choose --output."
                ) from error
            yield
