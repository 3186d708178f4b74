"""Compare runs: the same groups and numbers as `podnet compare`, and the paper's own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from podnet.paper.numbers import published
from podnet.report.averages import comparison_grid, transfer_grid
from podnet.report.compare import comparison_panel, grouped
from podnet.report.results import MISSING
from podnet.report.tables import differing_options
from podnet.runs.folder import Run
from podnet.studio.answers import Comparison, Curve, Published, Row, Value


def compare(runs: Sequence[Run], names: Sequence[str]) -> Comparison:
    """Compare runs; those that differ only in order or seed form one line, mean ± std."""
    named = list(zip(runs, names, strict=True))
    shown = [(run, name) for run, name in named if run.results()]
    groups = grouped([run for run, _ in shown])
    panel, grid, transfer = comparison_panel(groups, ""), comparison_grid(groups, ""), transfer_grid(groups, "")
    cells = [(label, own + other) for (label, own), (_, other) in zip(grid.rows, transfer.rows, strict=True)]
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
