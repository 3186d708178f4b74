"""Tables for the terminal: results of one run, and comparisons of several."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from podnet.report.results import MISSING, PARTS, Results, number, shown_inferences, sizes

COLUMNS = {
    "accuracy": "accuracy",
    "old_accuracy": "old",
    "new_accuracy": "new",
    "average_incremental_accuracy": "average",
    "forgetting": "forgetting",
}
SHORT = ("all", "old", "new", "avg", "forgot")  # the same in at most six characters


def results_table(results: Results, title: str) -> Table:
    """One row per task, in 80 columns: for each inference accuracy on all, old and new classes, average, forgetting."""
    table = _table(title)
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


def summary(results: Results) -> str:
    """One line: average incremental accuracy and forgetting of each inference after the last task."""
    last = results[-1]
    parts = []
    for inference in shown_inferences(results):
        average = number(last["average_incremental_accuracy"][inference])
        lost = number(last["forgetting"][inference])
        parts.append(f"{inference.upper()} {average} (forgetting {lost})")
    return "average incremental accuracy: " + ", ".join(parts)


def size_summary(results: Results) -> str:
    """One line: what the learner takes after the last task; empty if an earlier version did not record it."""
    known = sizes(results[-1])
    if "all MB" not in known:
        return ""
    parts = ", ".join(f"{name} {size:.2f}" for name in PARTS.values() if (size := known[f"{name} MB"]))
    operations = known.get("million multiply-adds")
    speed = "" if operations is None else f", {operations:.1f} million multiply-adds an image"
    return f"kept: {known['all MB']:.2f} MB ({parts}); {results[-1]['parameters']:,} parameters{speed}"


def differing_options(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Options with different values in two runs; options that only one method has do not count."""
    options = dict.fromkeys(option for config in configs for option in config)
    return [option for option in options if len({str(config[option]) for config in configs if option in config}) > 1]


def settings_table(labels: Sequence[str], configs: Sequence[dict[str, Any]], options: Sequence[str]) -> Table:
    """One row per option, one column per run; a dash if a run's method has no such option."""
    table = _table("settings that differ")
    table.padding = (0, 2, 0, 0)
    table.add_column("option", no_wrap=True)
    for label in labels:
        table.add_column(Text(label), overflow="fold")
    for option in options:
        table.add_row(option, *(Text(str(config.get(option, MISSING))) for config in configs))
    return table


def accuracy_table(labels: Sequence[str], series: Sequence[Results]) -> Table:
    """Accuracy on all classes seen: one row per number of classes, one column per run and inference; then averages."""
    table = _table("accuracy on all classes seen")
    table.padding = (0, 1, 0, 0)
    table.add_column("classes", vertical="bottom", no_wrap=True)
    columns = [(results, inference) for results in series for inference in shown_inferences(results)]
    for label, results in zip(labels, series, strict=True):
        for inference in shown_inferences(results):
            title = Text(f"{label}\n{inference.upper()}")
            table.add_column(title, justify="right", vertical="bottom", width=8, overflow="fold")
    for seen in sorted({line["seen"] for results in series for line in results}):
        lines = [(next((line for line in results if line["seen"] == seen), None), i) for results, i in columns]
        table.add_row(str(seen), *(number(line["accuracy"][i] if line else None) for line, i in lines))
    table.add_section()
    for measure in ("average_incremental_accuracy", "forgetting"):
        table.add_row(COLUMNS[measure], *(number(results[-1][measure][i]) for results, i in columns))
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
