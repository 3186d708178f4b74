"""The table a run ends with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

INFERENCES = ("cnn", "nme")
COLUMNS = {
    "accuracy": "accuracy",
    "old_accuracy": "old",
    "new_accuracy": "new",
    "average_incremental_accuracy": "average",
    "forgetting": "forgetting",
}
SHORT = ("all", "old", "new", "avg", "forgot")  # the same in at most six letters


def number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def shown_inferences(results: Sequence[dict[str, Any]]) -> list[str]:
    """The inferences that the method has."""
    return [name for name in INFERENCES if results[0]["accuracy"][name] is not None]


def results_table(results: Sequence[dict[str, Any]], title: str) -> Table:
    """A row a task, in 80 columns: for each inference accuracy on all, old and new classes, average, forgetting."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("task", justify="right")
    table.add_column("seen", justify="right")
    for inference in shown_inferences(results):
        for i, heading in enumerate(SHORT):
            heading = f"{inference.upper() if i == 0 else ''}\n{heading}"
            table.add_column(heading, justify="right", style="bold" if i == 0 else None, min_width=6)
    for result in results:
        measures = [number(result[measure][i]) for i in shown_inferences(results) for measure in COLUMNS]
        table.add_row(str(result["task"]), str(result["seen"]), *measures)
    return table


def summary(results: Sequence[dict[str, Any]]) -> str:
    """One line to quote: average incremental accuracy and forgetting of each inference after the last task."""
    last = results[-1]
    parts = []
    for inference in shown_inferences(results):
        average = number(last["average_incremental_accuracy"][inference])
        lost = number(last["forgetting"][inference])
        parts.append(f"{inference.upper()} {average} (forgetting {lost})")
    return "average incremental accuracy: " + ", ".join(parts)
