"""The page of a run: one self-contained HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path

from podnet.report.markup import Html, paragraphs, picture, row, table, write_document
from podnet.report.results import Results, number, shown_inferences
from podnet.report.sections import accuracy_matrices, configuration, environment, timings
from podnet.report.tables import COLUMNS, summary
from podnet.runs.folder import Run


def write_page(run: Run, title: str) -> Path:
    """Write report.html into the run's folder, with the pictures that `draw_run` wrote there."""
    results = run.results()
    parts = [
        paragraphs(summary(results)),
        picture((run.folder / "curve.png").read_bytes(), "Accuracy on all classes seen, after each task."),
        "<h2>After each task</h2>",
        _results(results),
        "<h2>Accuracy on the classes of each task</h2><p>Rows: after each task. Columns: the classes of each task.</p>",
        accuracy_matrices(results),
        *(_numbers(results, inference) for inference in shown_inferences(results)),
        "<h2>Final confusion matrix</h2>",
        picture((run.folder / "confusion.png").read_bytes(), "Confusion matrix after the last task."),
        "<h2>Timings</h2>",
        timings(results),
        "<h2>Configuration</h2>",
        configuration(run),
        "<h2>Environment</h2>",
        environment(run),
    ]
    return write_document(run.folder / "report.html", title, parts)


def _results(results: Results) -> Html:
    measured = [(inference, measure) for inference in shown_inferences(results) for measure in COLUMNS]
    header = ["task", "classes", "memory", *(f"{i.upper()} {COLUMNS[measure]}" for i, measure in measured), "seconds"]
    rows = []
    for r in results:
        values = [number(r[measure][inference]) for inference, measure in measured]
        rows.append([r["task"], r["seen"], r["memory"], *values, f"{sum(r['seconds'].values()):.0f}"])
    return table(row(header, "th"), rows)


def _numbers(results: Results, inference: str) -> Html:
    header = [inference.upper(), *(f"task {r['task']}" for r in results)]
    rows = []
    for r in results:
        values = [*r["accuracy_per_task"][inference], *[None] * (len(results) - 1 - r["task"])]
        rows.append([f"after {r['task']}", *(("" if v is None else number(v)) for v in values)])
    return table(row(header, "th"), rows)
