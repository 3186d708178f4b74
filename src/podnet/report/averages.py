"""The tables of a comparison: the measures after the last task, and the size of what was learned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from podnet.metrics import intransigence
from podnet.report.compare import PROTOCOL, comparable
from podnet.report.grid import Cell, Grid
from podnet.report.results import (
    SIZES,
    Results,
    common_tasks,
    matrix_of,
    measured,
    progress,
    shown_inferences,
    sizes,
    why_missing,
)
from podnet.runs.folder import Run, method_name

UPPER_BOUNDS = ("joint",)  # methods that train on the images of all tasks
AVERAGES = {
    "average incremental accuracy": "average_incremental_accuracy",
    "last accuracy": "accuracy",
    "forgetting": "forgetting",
    "old": "old_accuracy",
    "new": "new_accuracy",
}
TRANSFER = {"learning accuracy": "learning_accuracy", "backward transfer": "backward_transfer"}
OF_NEW_CLASSES = ("learning_accuracy", "new_accuracy")  # a network that only predicts new classes is right about them
# Joint training has no memory, and what the tasks are is seen in the results.
SAME_DATA = frozenset(PROTOCOL) - {"memory_per_class", "memory_total", "classes", "base", "increment", "sizes"}


class _Read(NamedTuple):
    """A run, read once."""

    config: dict[str, Any]
    results: Results

    @property
    def is_upper_bound(self) -> bool:
        return method_name(self.config) in UPPER_BOUNDS


class _Group(NamedTuple):
    """Runs that share a row, cut off after the tasks that all of them have."""

    label: str
    runs: list[_Read]
    progress: str  # if they are not at their end
    inferences: list[str]


Column = Callable[[_Group, str], Cell]  # the cell of a group and an inference


def _read(groups: Mapping[str, Sequence[Run]]) -> list[_Group]:
    found = []
    for label, runs in groups.items():
        whole = [_Read(comparable(run), run.results()) for run in runs]
        tasks = len(common_tasks([run.results for run in whole]))
        cut = [run._replace(results=run.results[:tasks]) for run in whole] if tasks else []
        found.append(_Group(label, cut, progress(whole[0].results), shown_inferences(whole[0].results)))
    return found


def comparison_grid(groups: Mapping[str, Sequence[Run]], title: str) -> Grid:
    """One row per group and inference, over the tasks that all runs of the group have."""
    read = _read(groups)
    columns: dict[str, Column] = {name: partial(_cell, measure) for name, measure in AVERAGES.items()}
    notes = [f"{group.label}: {why}" for group in read if group.runs and (why := why_missing(group.runs[0].results))]
    notes += _notes(read)
    if bounds := {method_name(run.config) for group in read for run in group.runs if run.is_upper_bound}:
        words = "Upper bound, trained on the images of all tasks and not ranked"
        notes.append(f"{words}: {', '.join(bounds)}.")
    return Grid(title, "method", tuple(columns), _rows(read, columns), notes=tuple(notes), lowest=("forgetting",))


def transfer_grid(groups: Mapping[str, Sequence[Run]], title: str) -> Grid:
    """The same rows: how well tasks were learned, and what became of them; intransigence if a joint run is given."""
    read = _read(groups)
    columns: dict[str, Column] = {name: partial(_cell, measure) for name, measure in TRANSFER.items()}
    notes = list(_notes(read))
    runs = [_Read(comparable(run), run.results()) for members in groups.values() for run in members]
    if joints := [run for run in runs if run.is_upper_bound]:
        columns["intransigence"] = partial(_intransigence, joints)
        notes.append("Intransigence: how far learning accuracy is below that of joint training on the same classes.")
    return Grid(title, "method", tuple(columns), _rows(read, columns), notes=tuple(notes))


def _rows(groups: Sequence[_Group], columns: Mapping[str, Column]) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    return tuple(
        (f"{group.label} ({inference.upper()})", tuple(cell(group, inference) for cell in columns.values()))
        for group in groups
        for inference in group.inferences
    )


def _cell(measure: str, group: _Group, inference: str) -> Cell:
    values = [measured(run.results, measure, inference) for run in group.runs]
    bound = any(run.is_upper_bound for run in group.runs)
    best_counts = measure not in OF_NEW_CLASSES and not group.progress and not bound
    return Cell(tuple(value for value in values if value is not None), competes=best_counts)


def _intransigence(joints: Sequence[_Read], group: _Group, inference: str) -> Cell:
    """Of each run, against the mean of the joint runs of the same classes; empty if a run has no such joint run."""
    values = []
    for run in group.runs:
        matrix = matrix_of(run.results, inference)
        own = [joint for joint in joints if not run.is_upper_bound and _same_tasks(run, joint)]
        values.append([intransigence(matrix, matrix_of(joint.results, "cnn")) for joint in own])
    return Cell(tuple(map(fmean, values)) if all(values) else (), competes=False)


def _same_tasks(run: _Read, joint: _Read) -> bool:
    """Whether joint training learned the same classes of the same data in the same tasks."""
    classes = [line["new_classes"] for line in run.results]
    if classes != [line["new_classes"] for line in joint.results[: len(classes)]]:
        return False
    return all(run.config.get(option) == joint.config.get(option) for option in SAME_DATA)


def _notes(groups: Sequence[_Group]) -> Iterator[str]:
    if any(len(group.runs) > 1 for group in groups):
        yield "Mean ± sample standard deviation over runs that differ only by class order and seed."
    if any(group.progress for group in groups):
        yield "Rows marked 'n of m tasks' are unfinished and not ranked."


def size_grid(groups: Mapping[str, Sequence[Run]], title: str) -> Grid | None:
    """What each group takes after the last task; None if no run recorded it."""
    rows = []
    for group in _read(groups):
        known = [sizes(run.results[-1]) for run in group.runs]
        rows.append((group.label, tuple(_size_cell([each.get(column) for each in known]) for column in SIZES)))
    if not any(cell.ours for _, cells in rows for cell in cells):
        return None
    return Grid(title, "method", SIZES, tuple(rows), notes=("Multiply-adds of one image; 1 MB is a million bytes.",))


def _size_cell(values: Sequence[float | None]) -> Cell:
    """Sizes do not compete, and if all runs have the same, it has no deviation."""
    known = [value for value in values if value is not None]
    return Cell(tuple(known[:1] if len(set(known)) == 1 else known), competes=False)
