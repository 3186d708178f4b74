"""The records of a run as rows of named numbers, the same for all loggers."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from podnet.io.files import GrowingLines
from podnet.runs.evaluation import MEASURES
from podnet.runs.folder import Run


class Row(NamedTuple):
    """The numbers of an epoch or of a task."""

    number: int  # of the row in the run
    kind: Literal["epoch", "task"]
    phase: str  # of an epoch; empty for a task
    step: int  # epochs of the phase before it, in all tasks; or classes seen
    line: Mapping[str, Any]  # of epochs.jsonl or results.jsonl
    scalars: Mapping[str, float]


class Logger(Protocol):
    """Where the rows of a run go. Making one fails if a package is missing; nothing is written before the first row."""

    def __init__(self, run: Run) -> None: ...

    def write(self, rows: Sequence[Row]) -> None:
        """Write further rows. The first call replaces what an earlier logger left of this run."""

    def close(self, failed: bool) -> None:
        """End, whether or not anything was written."""


class Rows:
    """The rows of a run in the order in which it wrote them: the epochs of a task, then its results."""

    def __init__(self, run: Run) -> None:
        self._epochs, self._results = GrowingLines(run.epochs_file), GrowingLines(run.results_file)
        self._read = Counter[str]()  # lines of each kind
        self._steps = Counter[str]()  # epochs of each phase

    def update(self) -> list[Row]:
        """The rows that were added."""
        epochs = self._epochs.update()[self._read["epoch"] :]
        results = self._results.update()[self._read["task"] :]
        rows = [self._row("epoch", line) for line in epochs] + [self._row("task", line) for line in results]
        first = self._read.total()
        self._read.update(row.kind for row in rows)
        rows.sort(key=lambda row: (row.line["task"], row.kind == "task"))
        return [row._replace(number=first + i) for i, row in enumerate(rows)]

    def _row(self, kind: Literal["epoch", "task"], line: Mapping[str, Any]) -> Row:
        if kind == "task":
            return Row(0, kind, "", int(line["seen"]), line, task_scalars(line))
        phase = str(line["phase"])
        step = self._steps[phase]
        self._steps[phase] += 1
        scalars = {f"loss {phase}/{term}": float(value) for term, value in line["losses"].items()}
        return Row(0, kind, phase, step, line, scalars | {f"learning rate/{phase}": float(line["rate"])})


def task_scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a results line; those that an earlier version did not record are missing."""
    scalars: dict[str, float] = {}
    for measure in MEASURES:
        if measure != "accuracy_per_task":
            found = line.get(measure, {}).items()
            scalars |= {f"{measure}/{inference}": value for inference, value in found if value is not None}
    sizes = {name: line.get(name) for name in ("memory", "parameters", "multiply_adds")}
    scalars |= {f"size/{name}": value for name, value in sizes.items() if value is not None}
    scalars |= {f"bytes/{part}": size for part, size in line.get("bytes", {}).items()}
    return scalars | {f"seconds/{stage}": seconds for stage, seconds in line["seconds"].items()}


def identity(run: Run) -> str:
    """A short id of a run that stays the same when it is resumed, and is another when it is replaced."""
    began = [str(entry.get("date")) for entry in run.environments()[:1]]
    parts = [run.folder.resolve().name, *began, run.config_file.read_text()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
