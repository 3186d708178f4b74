"""Runs over each other: the same groups and numbers as `podnet compare` prints, and the paper's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from podnet.benchmarks.paper import published
from podnet.report.compare import comparison_grid, comparison_panel, grouped
from podnet.report.results import MISSING
from podnet.report.tables import differing_options
from podnet.runs import Run


@dataclass(frozen=True)
class Curve:
    """Accuracy on all classes seen; the mean of the runs of a group, and their sample standard deviation."""

    label: str
    colour: str
    dashed: bool
    seen: list[int]
    mean: list[float]
    std: list[float] | None  # None of a single run


@dataclass(frozen=True)
class Published:
    """An average that the paper prints."""

    label: str
    mean: float
    std: float | None


@dataclass(frozen=True)
class Value:
    """A number of a table; nothing where it was not measured."""

    mean: float | None
    std: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    label: str
    values: list[Value]


@dataclass(frozen=True)
class Comparison:
    """All that is shown of several runs."""

    curves: list[Curve]
    paper: list[Published]
    columns: list[str]
    rows: list[Row]
    notes: list[str]
    options: dict[str, list[str]]  # those that differ, a value for each run
    names: list[str]  # of the runs
    left_out: list[str]  # runs without a finished task


def compare(runs: Sequence[Run], names: Sequence[str]) -> Comparison:
    """Put runs over each other; those that differ only by order or seed are one line, mean ± std."""
    named = list(zip(runs, names, strict=True))
    shown = [(run, name) for run, name in named if run.results()]
    groups = grouped([run for run, _ in shown])
    panel, grid = comparison_panel(groups, ""), comparison_grid(groups, "")
    configs = [run.config() for run, _ in shown]
    paper = {row: number for config in configs for row, number in published(config).items()}
    return Comparison(
        curves=[
            Curve(
                label=line.label,
                colour=line.colour,
                dashed=line.dashed,
                seen=[int(x) for x in line.x],
                mean=[fmean(values) for values in zip(*line.ys, strict=True)],
                std=[stdev(values) for values in zip(*line.ys, strict=True)] if len(line.ys) > 1 else None,
            )
            for line in panel.lines
        ],
        paper=[Published(row, number.mean, number.std) for row, number in paper.items()],
        columns=list(grid.columns),
        rows=[Row(label, [_value(cell.ours) for cell in cells]) for label, cells in grid.rows],
        notes=list(grid.notes),
        options={
            option: [str(config.get(option, MISSING)) for config in configs] for option in differing_options(configs)
        },
        names=[name for _, name in shown],
        left_out=[name for run, name in named if not run.results()],
    )


def _value(ours: tuple[float, ...]) -> Value:
    return Value(fmean(ours) if ours else None, stdev(ours) if len(ours) > 1 else None, len(ours))
