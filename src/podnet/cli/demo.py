"""`podnet demo`: shows forgetting and what helps. Three methods learn the embedded digits one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from podnet.cli.display import show
from podnet.cli.printing import say
from podnet.errors import ConfigError
from podnet.processes import keep_freed_memory
from podnet.report.averages import comparison_grid
from podnet.report.compare import Captioned, write_report
from podnet.report.grid import Grid
from podnet.report.plots import Line, Panel, colour_of, figure_of, save_figure
from podnet.report.results import Results, number
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.loop import Notice, TaskDone, TaskStarted, run

METHODS = {"finetuning": "fine-tuning", "replay": "replay", "podnet": "PODNet"}
INTRO = (
    "Ten handwritten digits: five at first, then one at a time. Fine-tuning trains only on the new digit's images. "
    "Replay adds five kept images of each old digit. PODNet trains on the same images as replay."
)
PROTOCOL = {"dataset": "digits", "memory_per_class": 5, "threads": 1}
MEASURES = {"all": "All digits so far", "first": "The first five digits"}


def demo_command(known: argparse.Namespace) -> int:
    keep_freed_memory()
    console = Console()
    output = Path(known.output)
    runs = {name: Run(output / name) for name in METHODS}
    mark = output / ".demo"
    if not mark.exists() and any(record.exists() for record in runs.values()):
        raise ConfigError(f"{output} contains runs of another command; choose another --output.")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    console.print(INTRO, highlight=False)
    series: dict[str, Results] = {}
    for place, (name, label) in enumerate(METHODS.items(), start=1):
        console.print(f"\n{place} of {len(METHODS)}: {label}", highlight=False)
        experiment = resolve({"method": name, **PROTOCOL, "seed": known.seed})
        show(run(experiment, runs[name], "replace"), lines=TaskStarted | TaskDone | Notice)  # no losses
        series[name] = runs[name].results()
    kept = [f"{METHODS[name]} {measured(results, 'first')[-1]:.0f} %" for name, results in series.items()]
    moral = f"Accuracy on the first five digits, after all ten: {', '.join(kept)}."
    console.print("", _table(series), "", moral, sep="\n", highlight=False)
    figure = figure_of([_panel(series, measure) for measure in MEASURES])
    picture, *_ = save_figure(figure, output / "forgetting")
    groups = {METHODS[name]: [record] for name, record in runs.items()}
    contents: list[Grid | Captioned] = [Captioned("What is still known", figure), comparison_grid(groups, "Averages")]
    page = write_report(output, "Forgetting on the digits", INTRO, contents, [(METHODS[n], r) for n, r in runs.items()])
    say(f"picture: {picture}\npage:    {page}")
    return 0


def measured(results: Results, measure: str) -> list[float]:
    """Accuracy by the classifier after each task, on all classes so far or on those of the first task."""
    if measure == "all":
        return [line["accuracy"]["cnn"] for line in results]
    return [line["accuracy_per_task"]["cnn"][0] for line in results]


def _table(series: Mapping[str, Results]) -> Table:
    """One row per number of digits, two columns per method."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("digits\nknown", justify="right")
    for name in series:
        for measure in MEASURES:
            table.add_column(f"{METHODS[name] if measure == 'all' else ''}\n{measure}", justify="right", min_width=7)
    columns = [measured(results, measure) for results in series.values() for measure in MEASURES]
    seen = [line["seen"] for line in next(iter(series.values()))]
    for i, count in enumerate(seen):
        table.add_row(str(count), *(number(column[i]) for column in columns))
    return table


def _panel(series: Mapping[str, Results], measure: str) -> Panel:
    lines = []
    for name, results in series.items():
        values = measured(results, measure)
        x = tuple(float(line["seen"]) for line in results)
        lines.append(Line(f"{METHODS[name]}: {values[-1]:.1f} at the end", x, (tuple(values),), colour_of(name)))
    return Panel(MEASURES[measure], "digits known", "accuracy (%)", tuple(lines))
