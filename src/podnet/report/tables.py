"""The table a run ends with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

INFERENCES = ("cnn", "nme")
COLUMNS = {
    "accuracy": "accuracy",
    "old_accuracy": "old",
    "new_accuracy": "new",
    "average_incremental_accuracy": "average",
    "forgetting": "forgetting",
}


def number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def shown_inferences(results: Sequence[dict[str, Any]]) -> list[str]:
    """The inferences that the method has."""
    return [name for name in INFERENCES if results[0]["accuracy"][name] is not None]


def results_table(results: Sequence[dict[str, Any]], title: str) -> Table:
    """A row a task, the measures of both inferences side by side; `average` is average incremental accuracy so far."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in ("task", "classes", "memory"):
        table.add_column(name, justify="right")
    shown = shown_inferences(results)
    for inference in shown:
        for label in COLUMNS.values():
            heading = f"{inference.upper()}\n{label}" if label == "accuracy" else f"\n{label}"
            table.add_column(heading, justify="right", style="bold" if label in ("accuracy", "average") else None)
    table.add_column("\nseconds", justify="right")
    for result in results:
        cells = [number(result[measure][inference]) for inference in shown for measure in COLUMNS]
        seconds = f"{sum(result['seconds'].values()):.0f}"
        table.add_row(str(result["task"]), str(result["seen"]), str(result["memory"]), *cells, seconds)
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
