"""The results of a benchmark's finished runs: the paper's table with our numbers, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from podnet.metrics import INFERENCES
from podnet.paper.catalogue import Benchmark, Column, Row
from podnet.paper.numbers import Number
from podnet.paper.plan import Planned
from podnet.paper.scales import in_words
from podnet.report.grid import Cell, Grid
from podnet.report.plots import Line, Panel, accuracy_lines, accuracy_panel, colour_of
from podnet.runs.folder import method_name

Results = list[dict[str, Any]]
Measure = Callable[[Results, str], float | None]

# The differences, in points, that POD on the maps adds to POD-flat, from the paper's text.
BALANCE_IN_THE_PAPER = {("POD-spatial", "oldest"): 7.0, ("POD-spatial", "newest"): -0.2}
BALANCE_IN_THE_PAPER |= {("POD-pixels", "oldest"): 5.0, ("POD-pixels", "newest"): -2.0}


def average(results: Results, inference: str) -> float | None:
    value: float | None = results[-1]["average_incremental_accuracy"][inference]
    return value


def oldest(results: Results, inference: str) -> float | None:
    """Accuracy on the classes of the first task, after the last task."""
    row = results[-1]["accuracy_per_task"][inference]
    return None if row is None else float(row[0])


def newest(results: Results, inference: str) -> float | None:
    """Accuracy on the classes of a step just after it, averaged over the steps."""
    values = [line["new_accuracy"][inference] for line in results[1:]]
    return None if None in values else fmean(values)


def grids(benchmark: Benchmark, scale: str, planned: Sequence[Planned]) -> list[Grid]:
    if benchmark.balance:
        return _balance_grids(benchmark, scale, planned)
    if benchmark.inferences_across:
        columns = tuple((name.upper(), benchmark.columns[0], name) for name in INFERENCES[::-1])
        rows = [(row.label, [_cell(benchmark, planned, row, *column) for column in columns]) for row in benchmark.rows]
        return [_grid(benchmark, scale, planned, benchmark.title, tuple(label for label, _, _ in columns), rows)]
    rows = []
    for row in benchmark.rows:
        for inference in row.inferences:
            cells = [_cell(benchmark, planned, row, column.label, column, inference) for column in benchmark.columns]
            label = f"{row.label} ({inference.upper()})"
            taken_over = [_paper(benchmark, row, inference, column.label, "*") for column in benchmark.columns]
            if any(taken_over):
                rows.append((f"{label}*", [Cell(paper=number and number.mean) for number in taken_over]))
            rows.append((label, cells))
    return [
        _grid(benchmark, scale, planned, benchmark.title, tuple(column.label for column in benchmark.columns), rows)
    ]


def _grid(
    benchmark: Benchmark,
    scale: str,
    planned: Sequence[Planned],
    title: str,
    columns: tuple[str, ...],
    rows: list[tuple[str, list[Cell]]],
) -> Grid:
    return Grid(
        title=title,
        corner=benchmark.axis or "method",
        columns=columns,
        rows=tuple((label, tuple(cells)) for label, cells in rows),
        ours="ours" if scale == "full" else f"ours, {scale}",
        paper="paper" if scale == "full" else "paper, full",
        notes=tuple(_notes(benchmark, scale, planned, rows)),
    )


def _notes(
    benchmark: Benchmark, scale: str, planned: Sequence[Planned], rows: list[tuple[str, list[Cell]]]
) -> Iterator[str]:
    yield in_words(benchmark, scale)
    if any(label.endswith("*") for label, _ in rows):
        yield "* The paper's number is from Hou et al. (2019); neither the paper nor we ran it."
    if benchmark.remark:
        yield benchmark.remark
    added = [row for row in benchmark.rows if row.added]
    if added:
        yield f"Not in the paper: {', '.join(row.label for row in added)}."
    if bounds := [row.label for row in added if row.upper_bound]:
        words = "Upper bound, trained on the images of all tasks, which does not compete for the best"
        yield f"{words}: {', '.join(bounds)}."
    for fidelity in {run.options.get("fidelity", "released") for run in planned} - {"released"}:
        yield f"PODNet with --fidelity {fidelity}."
    given = {run.experiment.method.step_epochs for run in planned} - {None} if scale == "full" else set()
    if given:
        yield f"Not the paper's: {' or '.join(sorted(map(str, given)))} epochs in each task after the first."
    for row, changes in {run.row.label: run.changes for run in planned if run.changes}.items():
        yield f"{row} with {', '.join(f'{option} {value}' for option, value in changes.items())}."
    if lacking := _lacking(planned):
        yield f"Not ranked, because not all class orders are finished: {'; '.join(lacking)}."


def _lacking(planned: Sequence[Planned]) -> list[str]:
    """The cells with fewer class orders than requested."""
    orders: dict[str, list[bool]] = {}
    for run in planned:
        orders.setdefault(f"{run.row.label}, {run.protocol}", []).append(run.finished())
    return [f"{cell} ({sum(done)} of {len(done)})" for cell, done in orders.items() if any(done) and not all(done)]


def _is_complete(planned: Sequence[Planned], row: Row, column: Column) -> bool:
    return all(run.finished() for run in planned if run.row == row and run.column == column)


def _cell(
    benchmark: Benchmark, planned: Sequence[Planned], row: Row, label: str, column: Column, inference: str
) -> Cell:
    number = _paper(benchmark, row, inference, label)
    ours = tuple(_by_order(planned, row, column, inference, average).values())
    competes = _is_complete(planned, row, column) and not row.upper_bound
    return Cell(ours, number and number.mean, number and number.std, competes)


def _paper(benchmark: Benchmark, row: Row, inference: str, column: str, mark: str = "") -> Number | None:
    """The paper's number; its tables name the inference only if they print both."""
    named = benchmark.paper.get((f"{row.label} ({inference.upper()}){mark}", column))
    return named or benchmark.paper.get((f"{row.label}{mark}", column))


def _by_order(
    planned: Sequence[Planned], row: Row, column: Column, inference: str, measure: Measure
) -> dict[tuple[str, int], float]:
    """The measure of each finished run of the cell, by class order and seed."""
    runs = [run for run in planned if run.row == row and run.column == column and run.finished()]
    values = {(run.order, run.options["seed"]): measure(run.record.results(), inference) for run in runs}
    return {order: value for order, value in values.items() if value is not None}


def _balance_grids(benchmark: Benchmark, scale: str, planned: Sequence[Planned]) -> list[Grid]:
    """Accuracy on the oldest and the newest classes, and the effect of POD on the maps on top of POD-flat."""
    column = benchmark.columns[0]
    kinds = [(name, measure, i) for name, measure in (("oldest", oldest), ("newest", newest)) for i in INFERENCES]
    titles = tuple(f"{name}, {inference.upper()}" for name, _, inference in kinds)
    values = {
        row.label: [_by_order(planned, row, column, inference, measure) for _, measure, inference in kinds]
        for row in benchmark.rows
    }
    complete = {row.label: _is_complete(planned, row, column) for row in benchmark.rows}
    ranked = {row.label for row in benchmark.rows if complete[row.label] and not row.upper_bound}
    absolute = [
        (label, [Cell(tuple(ours.values()), competes=label in ranked) for ours in cells])
        for label, cells in values.items()
    ]
    flat = values.get("POD-flat", [{}] * len(kinds))
    changes = []
    for label, cells in values.items():
        if (label, "oldest") in BALANCE_IN_THE_PAPER:
            differences = [
                tuple(ours[order] - before[order] for order in ours if order in before)
                for ours, before in zip(cells, flat, strict=True)
            ]
            numbers = [BALANCE_IN_THE_PAPER[label, name] for name, _, _ in kinds]
            competes = complete[label] and complete.get("POD-flat", False)
            pairs = zip(differences, numbers, strict=True)
            changes.append((label, [Cell(ours, paper, competes=competes) for ours, paper in pairs]))
    change = f"{benchmark.title}: points gained on POD-flat alone"
    return [
        _grid(benchmark, scale, planned, benchmark.title, titles, absolute),
        _grid(benchmark, scale, planned, change, titles, changes),
    ]


def panels(benchmark: Benchmark, scale: str, planned: Sequence[Planned]) -> list[Panel]:
    """The figure of the benchmark: accuracy by classes seen, or average accuracy by what its columns vary."""
    mark = "" if scale == "full" else f" ({scale})"
    done = [run for run in planned if run.finished()]
    if benchmark.against:
        lines = [_against(benchmark, done, row, inference) for row in benchmark.rows for inference in row.inferences]
        shown = tuple(line for line in lines if line.ys)
        return [Panel(f"{benchmark.title}{mark}", benchmark.axis, "average incremental accuracy (%)", shown)]
    kinds: list[tuple[str, Column, tuple[str, ...]]]
    if benchmark.inferences_across:  # many rows: one panel per inference
        kinds = [(name.upper(), benchmark.columns[0], (name,)) for name in INFERENCES[::-1]]
    else:
        kinds = [(column.label, column, INFERENCES[::-1]) for column in benchmark.columns]
    return [
        accuracy_panel(f"{benchmark.title}, {name}{mark}", _curves(benchmark, done, column, shown))
        for name, column, shown in kinds
    ]


def _against(benchmark: Benchmark, done: Sequence[Planned], row: Row, inference: str) -> Line:
    points = {}
    for column in benchmark.columns:
        if runs := [run for run in done if run.row == row and run.column == column]:
            x = float(runs[0].options[benchmark.against])
            points[x] = _by_order(runs, row, column, inference, average)
    orders = [order for order in next(iter(points.values()), {}) if all(order in values for values in points.values())]
    series = tuple(tuple(values[order] for values in points.values()) for order in orders)
    label = f"{row.label} ({inference.upper()})"
    return Line(label, tuple(points), series, _colour(benchmark, row), inference == "cnn")


def _curves(benchmark: Benchmark, done: Sequence[Planned], column: Column, inferences: Sequence[str]) -> list[Line]:
    lines = []
    for row in benchmark.rows:
        if series := [run.record.results() for run in done if run.row == row and run.column == column]:
            shown = [inference for inference in row.inferences if inference in inferences]
            lines += accuracy_lines(row.label, _colour(benchmark, row), series, shown)
    return lines


def _colour(benchmark: Benchmark, row: Row) -> str:
    """The method's own colour; variants of one method get different colours."""
    plain = row.options.keys() == {"method"} and not benchmark.inferences_across
    return colour_of(method_name(row.options) if plain else row.label, [r.label for r in benchmark.rows])
