"""The results of a benchmark's finished runs: the paper's table with our numbers, and its figure."""

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
Rows = list[tuple[str, tuple[Cell, ...]]]
Table = tuple[str, tuple[str, ...], Rows]  # title, columns, rows


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
    full = scale == "full"
    make = _balance if benchmark.balance else _by_inference if benchmark.inferences_across else _by_protocol
    return [
        Grid(
            title,
            benchmark.axis or "method",
            columns,
            tuple(rows),
            ours="ours" if full else f"ours, {scale}",
            paper="paper" if full else "paper, full",
            notes=tuple(_notes(benchmark, scale, planned, rows)),
        )
        for title, columns, rows in make(benchmark, planned)
    ]


def _by_protocol(benchmark: Benchmark, planned: Sequence[Planned]) -> Iterator[Table]:
    """A row for each method and inference, a column for each protocol."""
    rows: Rows = []
    for row in benchmark.rows:
        for inference in row.inferences:
            label = f"{row.label} ({inference.upper()})"
            taken_over = [_paper(benchmark, row, inference, column.label, "*") for column in benchmark.columns]
            if any(taken_over):
                rows.append((f"{label}*", tuple(Cell(paper=number and number.mean) for number in taken_over)))
            cells = (_cell(benchmark, planned, row, column.label, column, inference) for column in benchmark.columns)
            rows.append((label, tuple(cells)))
    yield benchmark.title, tuple(column.label for column in benchmark.columns), rows


def _by_inference(benchmark: Benchmark, planned: Sequence[Planned]) -> Iterator[Table]:
    """A row for each method, the inferences side by side, of the only protocol."""
    (column,), names = benchmark.columns, INFERENCES[::-1]
    rows = [
        (row.label, tuple(_cell(benchmark, planned, row, name.upper(), column, name) for name in names))
        for row in benchmark.rows
    ]
    yield benchmark.title, tuple(name.upper() for name in names), rows


def _balance(benchmark: Benchmark, planned: Sequence[Planned]) -> Iterator[Table]:
    """Accuracy on the oldest and the newest classes, and the effect of POD on the maps on top of POD-flat."""
    (column,) = benchmark.columns
    kinds = [(name, measure, i) for name, measure in (("oldest", oldest), ("newest", newest)) for i in INFERENCES]
    titles = tuple(f"{name}, {inference.upper()}" for name, _, inference in kinds)
    complete = {row.label: all(run.finished() for run in _runs(planned, row, column)) for row in benchmark.rows}
    values, absolute, changes = {}, [], []
    for row in benchmark.rows:
        values[row.label] = [_by_order(planned, row, column, inference, measure) for _, measure, inference in kinds]
        ranked = complete[row.label] and not row.upper_bound
        absolute.append((row.label, tuple(Cell(tuple(ours.values()), competes=ranked) for ours in values[row.label])))
    yield benchmark.title, titles, absolute
    flat = values.get("POD-flat", [{}] * len(kinds))
    for label, cells in values.items():
        if (label, "oldest") in benchmark.paper:
            differences = [
                tuple(ours[order] - before[order] for order in ours if order in before)
                for ours, before in zip(cells, flat, strict=True)
            ]
            numbers = [benchmark.paper[label, name].mean for name, _, _ in kinds]
            competes = complete[label] and complete.get("POD-flat", False)
            pairs = zip(differences, numbers, strict=True)
            changes.append((label, tuple(Cell(ours, paper, competes=competes) for ours, paper in pairs)))
    yield f"{benchmark.title}: points gained on POD-flat alone", titles, changes


def _notes(benchmark: Benchmark, scale: str, planned: Sequence[Planned], rows: Rows) -> Iterator[str]:
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


def _runs(planned: Sequence[Planned], row: Row, column: Column) -> list[Planned]:
    return [run for run in planned if run.row == row and run.column == column]


def _cell(
    benchmark: Benchmark, planned: Sequence[Planned], row: Row, label: str, column: Column, inference: str
) -> Cell:
    number = _paper(benchmark, row, inference, label)
    ours = tuple(_by_order(planned, row, column, inference, average).values())
    competes = not row.upper_bound and all(run.finished() for run in _runs(planned, row, column))
    return Cell(ours, number and number.mean, number and number.std, competes)


def _paper(benchmark: Benchmark, row: Row, inference: str, column: str, mark: str = "") -> Number | None:
    """The paper's number; its tables name the inference only if they print both."""
    named = benchmark.paper.get((f"{row.label} ({inference.upper()}){mark}", column))
    return named or benchmark.paper.get((f"{row.label}{mark}", column))


def _by_order(
    planned: Sequence[Planned], row: Row, column: Column, inference: str, measure: Measure
) -> dict[tuple[str, int], float]:
    """The measure of each finished run of the cell, by class order and seed."""
    runs = [run for run in _runs(planned, row, column) if run.finished()]
    values = {(run.order, run.options["seed"]): measure(run.record.results(), inference) for run in runs}
    return {order: value for order, value in values.items() if value is not None}


def panels(benchmark: Benchmark, scale: str, planned: Sequence[Planned]) -> list[Panel]:
    """The figure of the benchmark: accuracy by classes seen, or average accuracy by what its columns vary."""
    mark = "" if scale == "full" else f" ({scale})"
    done = [run for run in planned if run.finished()]
    if benchmark.against:
        lines = [_against(benchmark, done, row, inference) for row in benchmark.rows for inference in row.inferences]
        shown = tuple(line for line in lines if line.ys)
        return [Panel(f"{benchmark.title}{mark}", benchmark.axis, "average incremental accuracy (%)", shown)]
    kinds: list[tuple[str, Column, tuple[str, ...]]]
    kinds = [(column.label, column, INFERENCES) for column in benchmark.columns]
    if benchmark.inferences_across:  # many rows: one panel per inference
        kinds = [(name.upper(), benchmark.columns[0], (name,)) for name in INFERENCES[::-1]]
    return [
        accuracy_panel(f"{benchmark.title}, {name}{mark}", _curves(benchmark, done, column, shown))
        for name, column, shown in kinds
    ]


def _against(benchmark: Benchmark, done: Sequence[Planned], row: Row, inference: str) -> Line:
    points = {}
    for column in benchmark.columns:
        if runs := _runs(done, row, column):
            x = float(runs[0].options[benchmark.against])
            points[x] = _by_order(runs, row, column, inference, average)
    orders = [order for order in next(iter(points.values()), {}) if all(order in values for values in points.values())]
    series = tuple(tuple(values[order] for values in points.values()) for order in orders)
    label = f"{row.label} ({inference.upper()})"
    return Line(label, tuple(points), series, _colour(benchmark, row), inference == "cnn")


def _curves(benchmark: Benchmark, done: Sequence[Planned], column: Column, inferences: Sequence[str]) -> list[Line]:
    lines = []
    for row in benchmark.rows:
        if series := [run.record.results() for run in _runs(done, row, column)]:
            shown = [inference for inference in row.inferences if inference in inferences]
            lines += accuracy_lines(row.label, _colour(benchmark, row), series, shown)
    return lines


def _colour(benchmark: Benchmark, row: Row) -> str:
    """The method's own colour; variants of one method get different colours."""
    return colour_of(_coloured(benchmark, row), [_coloured(benchmark, each) for each in benchmark.rows])


def _coloured(benchmark: Benchmark, row: Row) -> str:
    """What the colour of a row stands for."""
    plain = row.options.keys() == {"method"} and not benchmark.inferences_across
    return method_name(row.options) if plain else row.label
