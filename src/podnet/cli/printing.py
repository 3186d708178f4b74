"""Printing that several commands share."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from podnet.errors import PodnetError
from podnet.report.grid import Grid, rich_tables

SHOWN = 10  # lines of a long list
INFERENCE_NAMES = {"cnn": "classifier", "nme": "nearest mean"}


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def say_all(lines: Sequence[str]) -> None:
    """Print the first lines of a list, and the number of the rest."""
    for line in lines[:SHOWN]:
        say(f"  {line}")
    if len(lines) > SHOWN:
        say(f"  and {len(lines) - SHOWN} more")


def say_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Print the files that were left out, and why, if there are any."""
    if skipped:
        say(f"skipped: {len(skipped)}")
        say_all([f"{name}: {why}" for name, why in skipped])


@contextmanager
def going_on(failed: list[str], what: str) -> Iterator[None]:
    """Around something of which more is to come: an error is added to what failed."""
    try:
        yield
    except PodnetError as error:
        failed.append(f"{what}: {error}")
    except Exception as error:
        traceback.print_exc()
        failed.append(f"{what}: {type(error).__name__}: {error}")


def say_failed(sentences: Sequence[str]) -> int:
    """Print what failed, at the end of a command that went on with the rest; its exit code."""
    for sentence in sentences:
        say(f"failed: {sentence}")
    return 1 if sentences else 0


def plain_table(*columns: str) -> Table:
    """A table without lines: names on the left, numbers on the right."""
    table = Table(box=None)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return table


def print_grids(grids: Iterable[Grid]) -> None:
    console = Console()
    for grid in grids:
        console.print(*rich_tables(grid, console.width), sep="\n")


def percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f}"


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
