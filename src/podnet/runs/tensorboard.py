"""TensorBoard event files, made from the run's own records; rewritten on resume."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from podnet.engine.training import Epoch
from podnet.errors import MissingPackageError
from podnet.io.files import GrowingLines
from podnet.runs.folder import Run
from podnet.runs.loop import Record, TaskDone

MEASURES = ("accuracy", "accuracy_top5", "average_incremental_accuracy", "forgetting", "old_accuracy", "new_accuracy")


def logged(records: Iterable[Record], run: Run) -> Iterator[Record]:
    """Pass on the records of a run unchanged, after writing them to the event files."""
    events = Events(run)
    for record in records:
        if isinstance(record, Epoch | TaskDone):
            events.catch_up()
        yield record
    events.catch_up()
    events.close()


class Events:
    """Losses and learning rate by epoch of a phase, accuracies by classes seen."""

    def __init__(self, run: Run) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError("--tensorboard needs TensorBoard: pip install 'podnet[tensorboard]'.") from error
        self.run = run
        self._writer_class: type[Any] = SummaryWriter
        self._writer: Any = None
        self._epochs, self._results = GrowingLines(run.epochs_file), GrowingLines(run.results_file)
        self._written = 0  # results
        self._steps: Counter[str] = Counter()  # epochs written, per phase

    def catch_up(self) -> None:
        """Write the new records; the first time, replace what an earlier writer left."""
        if self._writer is None:
            shutil.rmtree(self.run.events, ignore_errors=True)
            self._writer = self._writer_class(str(self.run.events))
        for line in self._epochs.update()[self._steps.total() :]:
            self._write_epoch(line)
        results = self._results.update()
        for line in results[self._written :]:
            self._write_result(line)
        self._written = len(results)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write_epoch(self, line: Mapping[str, Any]) -> None:
        phase = str(line["phase"])
        step = self._steps[phase]
        for term, value in line["losses"].items():
            self._writer.add_scalar(f"loss {phase}/{term}", value, step)
        self._writer.add_scalar(f"learning rate/{phase}", line["rate"], step)
        self._steps[phase] += 1

    def _write_result(self, line: Mapping[str, Any]) -> None:
        for measure in MEASURES:
            for inference, value in line[measure].items():
                if value is not None:
                    self._writer.add_scalar(f"{measure}/{inference}", value, line["seen"])
        for stage, seconds in line["seconds"].items():
            self._writer.add_scalar(f"seconds/{stage}", seconds, line["seen"])
