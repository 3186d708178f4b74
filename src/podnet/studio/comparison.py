"""Compare runs: the same groups and numbers as `podnet compare`, and the paper's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from podnet.paper.numbers import published
from podnet.report.results import MISSING
from podnet.report.tables import differing_options
from podnet.runs.folder import Run


@dataclass(frozen=True)
class Curve:
    """Accuracy on all classes seen; the mean of the runs of a group, and their sample standard deviation."""

    label: str
    colour: str
    dashed: bool
    seen: list[int]
    mean: list[float]
    std: list[float] | None  # None for a single run


@dataclass(frozen=True)
class Published:
    """An average that the paper prints."""

    label: str
    mean: float
    std: float | None


@dataclass(frozen=True)
class Value:
    """A number of a table; None if not measured."""

    mean: float | None
    std: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    label: str
    values: list[Value]


@dataclass(frozen=True)
class Comparison:
    """The comparison of several runs."""

    curves: list[Curve]
    paper: list[Published]
    columns: list[str]
    rows: list[Row]
    notes: list[str]
    options: dict[str, list[str]]  # those that differ, one value per run
    names: list[str]  # of the runs
    left_out: list[str]  # runs without a finished task


def compare(runs: Sequence[Run], names: Sequence[str]) -> Comparison:
    """Compare runs; those that differ only in order or seed form one line, mean ± std."""
    from podnet.report.averages import comparison_grid, transfer_grid  # imports matplotlib, so only when needed
    from podnet.report.compare import comparable, comparison_panel, grouped

    named = list(zip(runs, names, strict=True))
    shown = [(run, name) for run, name in named if run.results()]
    groups = grouped([run for run, _ in shown])
    panel, grid, transfer = comparison_panel(groups, ""), comparison_grid(groups, ""), transfer_grid(groups, "")
    cells = [(label, own + other) for (label, own), (_, other) in zip(grid.rows, transfer.rows, strict=True)]
    configs = [comparable(run) for run, _ in shown]
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
        columns=[*grid.columns, *transfer.columns],
        rows=[Row(label, [_value(cell.ours) for cell in row]) for label, row in cells],
        notes=list(dict.fromkeys(grid.notes + transfer.notes)),
        options={
            option: [str(config.get(option, MISSING)) for config in configs] for option in differing_options(configs)
        },
        names=[name for _, name in shown],
        left_out=[name for run, name in named if not run.results()],
    )


def _value(ours: tuple[float, ...]) -> Value:
    return Value(fmean(ours) if ours else None, stdev(ours) if len(ours) > 1 else None, len(ours))
