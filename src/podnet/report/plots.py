"""The pictures of a run: its accuracy curve, and where the final predictions go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from safetensors.numpy import load_file

from podnet.files import write_atomically
from podnet.metrics import confusion_matrix
from podnet.runs import Run

COLOURS = {"cnn": "#0b6e99", "nme": "#c4622d"}


def draw_run(run: Run, title: str) -> None:
    """Write curve.png, curve.svg and confusion.png into the run's folder."""
    results = run.results()
    curve = accuracy_curve(results, title)
    for ending in ("png", "svg"):
        _save(curve, run.folder / f"curve.{ending}")
    predictions = load_file(run.predictions / f"task-{results[-1]['task']:04d}.safetensors")
    names = [name for result in results for name in result["new_classes"]]
    _save(confusion(predictions, names, title), run.folder / "confusion.png")


def accuracy_curve(results: Sequence[dict[str, Any]], title: str) -> Figure:
    """Accuracy on all seen classes against their number, one line an inference."""
    figure = _figure(6.4, 4.2)
    axes = figure.add_subplot()
    seen = [result["seen"] for result in results]
    for inference, colour in COLOURS.items():
        accuracy = [result["accuracy"][inference] for result in results]
        if accuracy[0] is not None:
            average = results[-1]["average_incremental_accuracy"][inference]
            label = f"{inference.upper()}: {average:.2f} on average"
            axes.plot(seen, accuracy, marker="o", markersize=3.5, color=colour, label=label)
    axes.set(xlabel="classes seen", ylabel="accuracy (%)", title=title)
    axes.set_ylim(bottom=0, top=101)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    return figure


def confusion(predictions: dict[str, Any], names: Sequence[str], title: str) -> Figure:
    """Confusion matrices after the last task, rows in percent of the true class, one panel an inference."""
    shown = [inference for inference in COLOURS if inference in predictions]
    figure = _figure(5.2 * len(shown), 4.8)
    for i, inference in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), i + 1)
        counts = confusion_matrix(predictions[inference], predictions["targets"], len(names))
        shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=100)
        axes.set(title=f"{title}, {inference.upper()}", xlabel="predicted class", ylabel="true class")
        if len(names) <= 30:
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
            axes.set_yticks(range(len(names)), names, fontsize=7)
        figure.colorbar(image, ax=axes, label="% of the true class", fraction=0.046)
    return figure


def _save(figure: Figure, path: Path) -> None:
    buffer = BytesIO()
    figure.savefig(buffer, dpi=150, format=path.suffix[1:])
    write_atomically(path, buffer.getvalue())


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
