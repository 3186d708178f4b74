"""Weights & Biases: into the run folder, or to its server if WANDB_MODE=online."""

import os
import shutil
from collections.abc import Sequence
from typing import Any

from podnet.errors import importing
from podnet.runs.folder import Run
from podnet.runs.loggers.rows import Row, identity


class WandbLogger:
    """Rows are numbered through; charts of epochs are drawn by epoch of their phase, the others by classes seen.

    Nothing leaves the machine unless WANDB_MODE says so. The id stays the same, so a run that is resumed, or synced
    again, replaces itself.
    """

    def __init__(self, run: Run) -> None:
        with importing("wandb", "the logger wandb needs its package"):
            import wandb
        self.run = run
        self._wandb: Any = wandb
        self._run: Any = None
        self._first = 0  # the first row that the server does not have
        self._known: set[str] = set()  # names whose axis the program knows

    def write(self, rows: Sequence[Row]) -> None:
        if self._run is None:
            self._begin()
        for row in rows:
            axis = f"epoch/{row.phase}" if row.kind == "epoch" else "classes"
            for name in row.scalars.keys() - self._known:
                self._run.define_metric(name, step_metric=axis)
            self._known |= row.scalars.keys()
            if row.number >= self._first:
                self._run.log({**row.scalars, axis: row.step, "task": row.line["task"]}, step=row.number)

    def _begin(self) -> None:
        shutil.rmtree(self.run.folder / "wandb", ignore_errors=True)
        self._run = self._wandb.init(
            dir=str(self.run.folder),
            project=os.environ.get("WANDB_PROJECT", "podnet"),
            name=self.run.folder.resolve().name,
            id=identity(self.run),
            resume="allow",
            reinit="create_new",
            config=self.run.config(),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        self._first = self._run.step

    def close(self, failed: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(failed))
