"""The page of a run: one self-contained HTML file that opens offline."""

from pathlib import Path

from podnet.report.markup import Html, paragraphs, picture, row, table, write_document
from podnet.report.results import (
    MISSING,
    SIZES,
    Results,
    has_row,
    measured,
    number,
    shown_inferences,
    sizes,
    why_missing,
)
from podnet.report.sections import accuracy_matrices, configuration, environment, timings
from podnet.report.tables import COLUMNS, summary
from podnet.runs.folder import Run

MEASURES = COLUMNS | {"backward_transfer": "backward transfer", "learning_accuracy": "learning accuracy"}


def write_page(run: Run, title: str) -> Path:
    """Write report.html into the run's folder, with the pictures that `draw_run` wrote there."""
    results = run.results()
    parts = [
        paragraphs(f"{summary(results)}\n\n{why_missing(results)}"),
        picture((run.folder / "curve.png").read_bytes(), "Accuracy on all classes seen, after each task."),
        "<h2>After each task</h2>",
        *(_measures(results, inference) for inference in shown_inferences(results)),
        _sizes(results),
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


def _measures(results: Results, inference: str) -> Html:
    """A table for each inference: both side by side would be too wide for a screen."""
    rows = []
    for end, line in enumerate(results, start=1):
        values = [measured(results[:end], measure, inference) for measure in MEASURES]
        rows.append([line["task"], line["seen"], *map(number, values)])
    return table(row(["task", "classes", *MEASURES.values()], "th"), rows, inference.upper())


def _sizes(results: Results) -> Html:
    """Exemplars, what the learner takes as far as it was recorded, and seconds."""
    names = ["parameters", *SIZES[1:]] if any("bytes" in line for line in results) else []
    rows = []
    for line in results:
        known = {name: number(size) for name, size in sizes(line).items()}
        known["parameters"] = f"{line['parameters']:,}" if "parameters" in line else MISSING
        shown = [known.get(name, MISSING) for name in names]
        rows.append([line["task"], line["memory"], *shown, f"{sum(line['seconds'].values()):.0f}"])
    return table(row(["task", "memory", *names, "seconds"], "th"), rows, "Size and time")


def _numbers(results: Results, inference: str) -> Html:
    header = [inference.upper(), *(f"task {r['task']}" for r in results)]
    rows = []
    for r in [line for line in results if has_row(line, inference)]:
        values = [*r["accuracy_per_task"][inference], *[None] * (len(results) - 1 - r["task"])]
        rows.append([f"after {r['task']}", *(("" if v is None else number(v)) for v in values)])
    return table(row(header, "th"), rows)
