"""Progress of a run: bars on a terminal, plain lines elsewhere. Only consumes records."""

from __future__ import annotations

from collections.abc import Iterable

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


def show(records: Iterable[Record], console: Console) -> None:
    """Follow a run to its end."""
    if console.is_terminal:
        _show_bars(records, console)
    else:
        for record in records:
            if text := _line(record):
                say(console, text)


def bar() -> tuple[ProgressColumn, ...]:
    """The columns of a progress bar: name, progress, elapsed and remaining time."""
    name = TextColumn("{task.description}")
    return name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()


def _show_bars(records: Iterable[Record], console: Console) -> None:
    with Progress(*bar(), TextColumn("{task.fields[losses]}"), console=console, transient=True) as progress:
        tasks = progress.add_task("tasks", total=None, losses="")
        phase = progress.add_task("", total=None, losses="")
        number = 0
        for record in records:
            if isinstance(record, TaskStarted):
                number = record.task
                progress.update(tasks, total=record.tasks, completed=number)
            elif isinstance(record, Iteration):
                done, total = steps(record)
                name = f"task {number}, {record.phase}, epoch {record.epoch + 1}"
                if done == 1:
                    progress.reset(phase, total=total)
                progress.update(phase, description=name, total=total, completed=done)
            elif isinstance(record, Epoch):
                progress.update(phase, losses=_losses(record))
            if not isinstance(record, Epoch) and (text := _line(record)):
                progress.console.print(text, markup=False, highlight=False)
            if isinstance(record, TaskDone):
                progress.update(tasks, advance=1)


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
