"""TensorBoard event files."""

import shutil
from collections.abc import Sequence
from typing import Any

from podnet.errors import importing
from podnet.runs.folder import Run
from podnet.runs.loggers.rows import Row


class TensorBoardLogger:
    """Losses and learning rate by epoch of a phase, measures by classes seen."""

    def __init__(self, run: Run) -> None:
        with importing("tensorboard", "event files need TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        self.folder = run.events
        self._writer_class: type[Any] = SummaryWriter
        self._writer: Any = None

    def write(self, rows: Sequence[Row]) -> None:
        if self._writer is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._writer = self._writer_class(str(self.folder))
        for row in rows:
            for name, value in row.scalars.items():
                self._writer.add_scalar(name, value, row.step)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()
