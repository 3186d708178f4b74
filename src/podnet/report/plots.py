"""Figures in one style: sized for a paper's columns, one fixed colour per method, reproducible to the byte."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any
from zlib import crc32

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation
from safetensors import SafetensorError
from safetensors.numpy import load_file

from podnet.errors import ConfigError, PodnetError
from podnet.io.files import write_atomically
from podnet.metrics import INFERENCES, confusion_matrix
from podnet.report.results import Results, common_tasks, shown_inferences, spread
from podnet.runs.folder import Run, method_name

# Okabe and Ito's colours, which colour-blind people can distinguish; then Tol's that are unlike them, for all else.
COLOURS = {
    "podnet": "#0072b2",
    "ucir": "#d55e00",
    "icarl": "#009e73",
    "bic": "#cc79a7",
    "replay": "#e69f00",
    "finetuning": "#999999",
    "joint": "#000000",
    "podnet-plus": "#56b4e9",
    "afc": "#882255",
    "acil": "#332288",
    "der": "#999933",
    "ncm": "#aa4499",
}
FURTHER_COLOURS = ("#44aa99", "#661100", "#6699cc", "#997700", "#ee99aa", "#225555", "#7b5ea7")
LOOK: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.markerscale": 0,  # a marker would hide the dashes of such a short line
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.0,
    "legend.labelspacing": 0.35,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 2.8,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "podnet",
    "pdf.fonttype": 42,
}
UNDATED: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
TITLE_WIDTH = 46  # characters per title line above a panel
LEGEND_WIDTH = 56  # characters per legend line
LEGEND_DROP = 0.42  # inches below the axes, past ticks and label
MANY_POINTS = 20  # lines with this many points have no markers


@dataclass(frozen=True)
class Line:
    """One curve: the mean of its series, with a band of ± their sample standard deviation (ddof=1)."""

    label: str
    x: tuple[float, ...]
    ys: tuple[tuple[float, ...], ...]  # one series per class order (or seed)
    colour: str  # from colour_of
    dashed: bool = False  # dashed CNN next to solid NME, or the paper's own numbers


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    lines: tuple[Line, ...]


def colour_of(method: str, others: Sequence[str] = ()) -> str:
    """The colour of a method, the same in every figure; other names get one by hash.

    Two such names may get the same colour. Pass all names of a figure as `others`, and the later one gets the next.
    """
    if method in COLOURS:
        return COLOURS[method]
    names = dict.fromkeys([*others, method])
    unused = [colour for name, colour in COLOURS.items() if name not in names]
    chosen: dict[str, str] = {}
    for name in names:
        if name not in COLOURS:
            start = crc32(name.encode()) % len(FURTHER_COLOURS)
            wanted = [*FURTHER_COLOURS[start:], *FURTHER_COLOURS[:start], *unused]
            chosen[name] = next((colour for colour in wanted if colour not in chosen.values()), wanted[0])
    return chosen[method]


def figure_of(panels: Sequence[Panel]) -> Figure:
    """Panels side by side, in rows of at most three, with legends below them."""
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    legend = max(-(-_legend_lines(panel) // _legend_columns(panel)) for panel in panels)
    with rc_context(LOOK):
        figure = Figure(figsize=(3.6 * columns, rows * (2.5 + 0.16 * legend)), layout="constrained")
        for i, panel in enumerate(panels):
            _draw(figure.add_subplot(rows, columns, i + 1), panel)
    return figure


def save_figure(figure: Figure, path_without_ending: Path) -> list[Path]:
    """Save as PNG, SVG and PDF; returns the three paths."""
    paths = [path_without_ending.with_name(f"{path_without_ending.name}.{ending}") for ending in UNDATED]
    with rc_context(LOOK):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")  # layout takes longest; do it once for all three
    for path in paths:
        write_figure(figure, path)
    return paths


def accuracy_lines(
    label: str, colour: str, series: Sequence[Results], inferences: Sequence[str] = INFERENCES
) -> list[Line]:
    """Accuracy on all classes seen by their number, one line per inference, over the tasks that all runs have."""
    tasks = common_tasks(series)
    lines = []
    for inference in [i for i in shown_inferences(series[0]) if i in inferences] if tasks else ():
        averages = [line["average_incremental_accuracy"][inference] for line in tasks[-1]]
        lines.append(
            Line(
                label=f"{label} ({inference.upper()}): {spread(averages)}",
                x=tuple(lines_of_task[0]["seen"] for lines_of_task in tasks),
                ys=tuple(tuple(line["accuracy"][inference] for line in run) for run in zip(*tasks, strict=True)),
                colour=colour,
                dashed=inference == "cnn",
            )
        )
    return lines


def accuracy_panel(title: str, lines: Sequence[Line]) -> Panel:
    return Panel(title, "classes seen", "accuracy (%)", tuple(lines))


def draw_run(run: Run, title: str) -> None:
    """Write curve.png, curve.svg and confusion.png into the run's folder."""
    results = run.results()
    method = method_name(run.config())
    curve = figure_of([accuracy_panel(title, accuracy_lines(method, colour_of(method), [results]))])
    write_figure(curve, run.folder / "curve.png")
    write_figure(curve, run.folder / "curve.svg")
    names = [name for result in results for name in result["new_classes"]]
    write_figure(confusion(final_confusion(run), names, title), run.folder / "confusion.png")


def final_confusion(run: Run) -> dict[str, np.ndarray]:
    """For each inference the confusion matrix after the last task, rows in percent of the true class."""
    results = run.results()
    try:
        found = load_file(run.predictions_file(results[-1]["task"]))
        kinds = [inference for inference in INFERENCES if inference in found]
        return {kind: confusion_shares(found[kind], found["targets"], results[-1]["seen"]) for kind in kinds}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise PodnetError(f"the predictions in {run.predictions} are damaged ({error}).") from error


def confusion_shares(predicted: np.ndarray, targets: np.ndarray, classes: int) -> np.ndarray:
    """The confusion matrix, rows in percent of the true class."""
    counts = confusion_matrix(predicted, targets, classes)
    shares: np.ndarray = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def confusion(matrices: dict[str, np.ndarray], names: Sequence[str], title: str) -> Figure:
    """Confusion matrices with class names, one panel per inference."""
    names = [name.replace("$", r"\$") for name in names]  # two of them would enclose a formula
    with rc_context(LOOK):
        figure = Figure(figsize=(4.2 * len(matrices), 3.8), layout="constrained")
        for i, (inference, shares) in enumerate(matrices.items()):
            axes = figure.add_subplot(1, len(matrices), i + 1)
            image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=100)
            axes.grid(False)
            axes.set(title=f"{title}, {inference.upper()}", xlabel="predicted class", ylabel="true class")
            if len(names) <= 30:
                axes.set_xticks(range(len(names)), names, rotation=90)
                axes.set_yticks(range(len(names)), names)
            figure.colorbar(image, ax=axes, label="% of the true class", fraction=0.046)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        mean = np.mean(line.ys, axis=0)
        marker, dashes = "o" if len(line.x) <= MANY_POINTS else "", "--" if line.dashed else "-"
        axes.plot(line.x, mean, color=line.colour, linestyle=dashes, marker=marker, label=_wrapped(line.label))
        if len(line.ys) > 1:
            deviation = np.std(line.ys, axis=0, ddof=1)
            axes.fill_between(line.x, mean - deviation, mean + deviation, color=line.colour, alpha=0.15, linewidth=0)
    axes.set(title=fill(panel.title, TITLE_WIDTH), xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if panel.lines:
        below = axes.transAxes + ScaledTranslation(0, -LEGEND_DROP, axes.figure.dpi_scale_trans)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            bbox_transform=below,
            ncols=_legend_columns(panel),
            borderaxespad=0,
        )


def _wrapped(label: str) -> str:
    return fill(label, LEGEND_WIDTH, subsequent_indent="  ")


def _legend_lines(panel: Panel) -> int:
    return sum(_wrapped(line.label).count("\n") + 1 for line in panel.lines)


def _legend_columns(panel: Panel) -> int:
    """Two if the labels are short enough to fit side by side."""
    return 2 if len(panel.lines) > 1 and max(len(line.label) for line in panel.lines) <= 28 else 1


def require_picture(path: Path) -> str:
    """The ending of a name for PNG, SVG or PDF; any other is refused."""
    if (ending := path.suffix[1:].lower()) not in UNDATED:
        raise ConfigError(f"cannot write a picture to {path}; its name must end in .{', .'.join(UNDATED)}.")
    return ending


def write_figure(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the suffix of the path."""
    buffer = BytesIO()
    ending = require_picture(path)
    with rc_context(LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font lacks the script: a box is shown
        figure.savefig(buffer, dpi=200, format=ending, metadata=UNDATED[ending])
    write_atomically(path, buffer.getvalue())
