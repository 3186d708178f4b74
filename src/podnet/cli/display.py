"""Progress of a run: bars on a terminal, plain lines elsewhere. Only consumes records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from podnet.cli.printing import say
from podnet.engine.training import Epoch, Iteration, steps
from podnet.errors import some
from podnet.runs.loop import Notice, Record, TaskDone, TaskStarted


def bar(*more: ProgressColumn, transient: bool = True) -> Progress:
    """A bar on a terminal, nothing elsewhere: name, progress, elapsed and remaining time, and what else is given."""
    console, name = Console(), TextColumn("{task.description}")
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), *more)
    return Progress(*columns, console=console, transient=transient, disable=not console.is_terminal)


def show(records: Iterable[Record], lines: Any = Record) -> None:
    """Follow a run to its end. `lines`: the kinds of records to print a line about where there is no terminal."""
    with bar(TextColumn("{task.fields[losses]}")) as progress:
        tasks = progress.add_task("tasks", total=None, losses="")
        phase = progress.add_task("", total=None, losses="")
        number = 0
        for record in records:
            if isinstance(record, TaskStarted):
                number = record.task
                progress.update(tasks, total=record.tasks, completed=number)
            elif isinstance(record, Iteration):
                done, total = steps(record)
                if done == 1:
                    progress.reset(phase, total=total)
                name = f"task {number}, {record.phase}, epoch {record.epoch + 1}"
                progress.update(phase, description=name, total=total, completed=done)
            elif isinstance(record, Epoch):
                progress.update(phase, losses=_losses(record))
            elif isinstance(record, TaskDone):
                progress.update(tasks, advance=1)
            wanted = isinstance(record, lines) if progress.disable else not isinstance(record, Epoch)
            if wanted and (text := _line(record)):
                say(text)


def _line(record: Record) -> str | None:
    if isinstance(record, Notice):
        return f"note: {record.text}"
    if isinstance(record, TaskStarted):
        names, new = some(record.class_names, most=8), len(record.class_names)
        more = f", more images of {record.refreshed} old" if record.refreshed else ""
        return f"task {record.task} of {record.tasks - 1}: {new} new, {record.old} old classes ({names}){more}"
    if isinstance(record, Epoch):
        return epoch_line(record)
    if isinstance(record, TaskDone):
        shown = [f"{k.upper()} {v:.2f}" for k, v in record.result["accuracy"].items() if v is not None]
        return f"  accuracy on {record.result['seen']} classes: {', '.join(shown)}"
    return None


def epoch_line(record: Epoch) -> str | None:
    """The losses of the first and of every tenth epoch."""
    first_or_tenth = record.epoch == 0 or (record.epoch + 1) % 10 == 0 or record.epoch + 1 == record.epochs
    position = f"  {record.phase} epoch {record.epoch + 1}/{record.epochs}"
    return f"{position}: {_losses(record)} ({record.seconds:.1f} s)" if first_or_tenth else None


def _losses(record: Epoch) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in record.losses.items())
