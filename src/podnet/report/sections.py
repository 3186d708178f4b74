"""The sections of a run's page: accuracy and confusion matrices, timings, configuration, environment."""

from functools import cache
from io import BytesIO

import numpy as np
from matplotlib.image import imsave

from podnet.errors import PodnetError
from podnet.report.markup import Html, escaped, image, row, table
from podnet.report.plots import final_confusion
from podnet.report.results import Results, has_row, shown_inferences
from podnet.runs.folder import Run


def accuracy_matrices(results: Results) -> Html:
    """For each inference the accuracy on the classes of each task (column) after each task (row)."""
    figures = []
    for inference in shown_inferences(results):
        rows = [line["accuracy_per_task"][inference] for line in results if has_row(line, inference)]
        matrix = np.full((len(rows), len(results)), np.nan)
        for i, row_of_task in enumerate(rows):
            matrix[i, : len(row_of_task)] = row_of_task
        caption = f"{inference.upper()}: after a task (row, from the top), on the classes of a task (column)"
        figures.append(_matrix(matrix, caption))
    return Html(f'<div class="matrices">{"".join(figures)}</div>')


def confusion_matrices(run: Run) -> Html:
    """For each inference the confusion matrix after the last task."""
    try:
        matrices = final_confusion(run)
    except (OSError, PodnetError):
        return Html("<p>The predictions of this run cannot be read.</p>")
    caption = "{}: true class (row, from the top), predicted class (column), in the order they were learned"
    figures = [_matrix(shares, caption.format(inference.upper())) for inference, shares in matrices.items()]
    return Html(f'<div class="matrices">{"".join(figures)}</div>')


def timings(results: Results) -> Html:
    """Seconds of each stage: total, mean per task, and share of the whole."""
    stages = dict.fromkeys(stage for result in reversed(results) for stage in result["seconds"])
    seconds = {stage: sum(result["seconds"].get(stage, 0.0) for result in results) for stage in stages}
    total = sum(seconds.values())
    rows = [
        [stage, f"{value:.1f}", f"{value / len(results):.2f}", f"{100 * value / total if total else 0:.1f} %"]
        for stage, value in [*seconds.items(), ("all", total)]
    ]
    return table(row(["stage", "seconds", "per task", "share"], "th"), rows)


def configuration(run: Run) -> Html:
    return Html(f"<pre>{escaped(run.config_file.read_text(errors='replace'))}</pre>")


def environment(run: Run) -> Html:
    """Commit, command, machine and versions: one table per start or resume."""
    entries = run.environments()
    if not entries:
        return Html("<p>The environment of this run was not recorded.</p>")
    return Html("".join(table(Html(""), [[k, _words(v)] for k, v in entry.items()], kind="words") for entry in entries))


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)


def _matrix(percent: np.ndarray, caption: str) -> Html:
    """One pixel per cell, scaled up by the page: a report may hold hundreds of them."""
    shown = image(_png(percent), caption, "matrix")
    return Html(f"<figure>{shown}<figcaption>0 %{_scale()}100 %<br>{escaped(caption)}</figcaption></figure>")


@cache
def _scale() -> Html:
    return image(_png(np.linspace(0, 100, 64)[None]), "colours from 0 to 100 %", "scale")


def _png(percent: np.ndarray) -> bytes:
    """NaN cells are transparent."""
    buffer = BytesIO()
    imsave(buffer, np.ma.masked_invalid(percent), cmap="viridis", vmin=0, vmax=100, format="png")
    return buffer.getvalue()
