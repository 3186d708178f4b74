"""A table of the paper's numbers and ours, as data, and its formats: terminal, Markdown, LaTeX, CSV, HTML.

Ours is "mean ± std" over class orders (or seeds), with the sample standard deviation (ddof=1); a single value has no
std. In each column our best is bold, if there are at least two.
"""

import csv
import io
import re
from dataclasses import dataclass, replace
from statistics import mean, stdev

from rich import box
from rich.table import Table
from rich.text import Text

from podnet.report import markup
from podnet.report.markup import Html
from podnet.report.results import number, spread

LABEL_WIDTH = 24  # in the terminal; longer labels wrap
CSV_COLUMNS = ("row", "column", "paper", "paper_std", "mean", "std", "count", "values", "notes")
LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "—": "---", "–": "--"}
    | {"±": r"$\pm$", "×": r"$\times$", "λ": r"$\lambda$", "η": r"$\eta$"}
)


@dataclass(frozen=True)
class Cell:
    """One number: ours, the paper's, both or neither."""

    ours: tuple[float, ...] = ()  # one value per class order (or seed); empty: not run
    paper: float | None = None
    paper_std: float | None = None
    competes: bool = True  # for bold; incomplete results do not


@dataclass(frozen=True)
class Grid:
    """A table of numbers. All text is plain; every format escapes it in its own way."""

    title: str
    corner: str  # what rows are, e.g. "method"
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]  # label, one cell per column
    ours: str = "ours"  # heading of our numbers, with the scale, e.g. "ours, small scale"
    paper: str = "paper"
    notes: tuple[str, ...] = ()  # printed below the table in every format
    lowest: tuple[str, ...] = ()  # columns where lower is better

    def __post_init__(self) -> None:
        for label, cells in self.rows:
            if len(cells) != len(self.columns):
                raise ValueError(f"row {label!r} has {len(cells)} cells for {len(self.columns)} columns.")


@dataclass(frozen=True)
class _Number:
    """A number as shown in any format."""

    text: str
    bold: bool = False

    def on_lines(self, stacked: bool) -> str:
        """With the deviation below the mean (stacked), or beside it."""
        return self.text.replace(" ±", "\n±") if stacked else self.text


def rich_tables(grid: Grid, width: int = 100) -> list[Table]:
    """Tables for a terminal of this width. If too wide, deviations go below their means; if that is not enough, the
    columns are split into several tables.
    """
    rows = _numbers(grid)
    titles = [f"{column}\n{heading}" if heading else column for column in grid.columns for heading in _headings(grid)]
    labels = min(LABEL_WIDTH, max(len(text) for text in [grid.corner, *(label for label, _ in rows)]))
    for stacked, whole_words in ((False, True), (True, True), (True, False)):
        widths = _widths(titles if whole_words else [""] * len(titles), rows, stacked)
        if labels + 1 + sum(2 + column for column in widths) <= width:  # every column has a space, and one between two
            break
    else:
        if (half := len(grid.columns) // 2) > 0:
            first = replace(_some_columns(grid, slice(0, half)), notes=())
            second = replace(_some_columns(grid, slice(half, None)), title=f"{grid.title}, continued")
            return rich_tables(first, width) + rich_tables(second, width)
    notes = Text("\n".join(grid.notes)) if grid.notes else None
    table = Table(title=Text(grid.title), title_justify="left", caption=notes, caption_justify="left")
    table.box, table.show_edge, table.padding = box.SIMPLE_HEAD, False, (0, 1, 0, 0)
    table.add_column(Text(grid.corner), width=labels)
    for title, column in zip(titles, widths, strict=True):
        table.add_column(Text(title), justify="right", width=column)
    for label, numbers in rows:
        table.add_row(Text(label), *(Text(n.on_lines(stacked), "bold" if n.bold else "") for n in numbers))
    return [table]


def _some_columns(grid: Grid, some: slice) -> Grid:
    rows = tuple((label, cells[some]) for label, cells in grid.rows)
    return replace(grid, columns=grid.columns[some], rows=rows)


def markdown(grid: Grid) -> str:
    """A GitHub table, with its title in bold above and notes below."""
    names = [f"{column}, {heading}" if heading else column for column in grid.columns for heading in _headings(grid)]
    lines = [
        f"**{_markdown(grid.title)}**",
        "",
        f"| {' | '.join(map(_markdown, [grid.corner, *names]))} |",
        "|---" + "|---:" * len(names) + "|",
    ]
    for label, numbers in _numbers(grid):
        cells = [f"**{n.text}**" if n.bold else n.text for n in numbers]
        lines.append(f"| {_markdown(label)} | {' | '.join(cells)} |")
    for note in grid.notes:
        lines += ["", _markdown(note)]
    return "\n".join(lines) + "\n"


def latex(grid: Grid) -> str:
    """A table environment in booktabs style."""
    headings = _headings(grid)
    count = len(headings)
    groups = [rf"\multicolumn{{{count}}}{{c}}{{{_latex(column)}}}" for column in grid.columns]
    rules = [rf"\cmidrule(lr){{{2 + count * i}-{1 + count * (i + 1)}}}" for i in range(len(grid.columns))]
    seconds = [_latex(heading) for heading in headings] * len(grid.columns)
    body = []
    for label, numbers in _numbers(grid):
        cells = [rf"\textbf{{{_latex(n.text)}}}" if n.bold else _latex(n.text) for n in numbers]
        body.append(" & ".join([_latex(label), *cells]) + r" \\")
    head = [" & ".join([_latex(grid.corner), *groups]) + r" \\"]
    if count > 1:
        head += [" ".join(rules), " & ".join(["", *seconds]) + r" \\"]
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(grid.title)}}}\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{% no wider than the text",
        rf"\begin{{tabular}}{{l{'r' * count * len(grid.columns)}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\smallskip\footnotesize {_latex(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def csv_text(grid: Grid) -> str:
    """Machine-readable: one line per cell, unrounded; `values` are separated by spaces, missing numbers are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for label, cells in grid.rows:
        for column, cell in zip(grid.columns, cells, strict=True):
            average = mean(cell.ours) if cell.ours else None
            deviation = stdev(cell.ours) if len(cell.ours) > 1 else None
            measured = (cell.paper, cell.paper_std, average, deviation, len(cell.ours), " ".join(map(str, cell.ours)))
            writer.writerow([label, column, *measured, " ".join(grid.notes)])
    return text.getvalue()


def html(grid: Grid) -> Html:
    headings = _headings(grid)
    if len(headings) > 1:
        groups = "".join(f'<th colspan="2">{markup.escaped(column)}</th>' for column in grid.columns)
        second = markup.row(["", *headings * len(grid.columns)], "th")
        head = Html(f"<tr><th>{markup.escaped(grid.corner)}</th>{groups}</tr>{second}")
    else:
        names = [f"{column}, {headings[0]}" if headings[0] else column for column in grid.columns]
        head = markup.row([grid.corner, *names], "th")
    rows = [[label, *(Html(f"<b>{n.text}</b>") if n.bold else n.text for n in ns)] for label, ns in _numbers(grid)]
    notes = "".join(markup.paragraphs(note, "note") for note in grid.notes)
    return Html(markup.table(head, rows, grid.title) + notes)


def _headings(grid: Grid) -> list[str]:
    """Headings of the sub-columns of each column: the paper's and ours, or only ours under the column's name."""
    if any(cell.paper is not None for _, cells in grid.rows for cell in cells):
        return [grid.paper, grid.ours]
    return [grid.ours if grid.ours != Grid.ours else ""]


def _numbers(grid: Grid) -> list[tuple[str, list[_Number]]]:
    """Each row's label and its numbers, one per sub-column."""
    best = [_best(grid, position) for position in range(len(grid.columns))]
    with_paper = len(_headings(grid)) > 1
    rows = []
    for label, cells in grid.rows:
        numbers = []
        for cell, top in zip(cells, best, strict=True):
            if with_paper:
                std = "" if cell.paper_std is None else f" ± {cell.paper_std:.2f}"
                numbers.append(_Number(number(cell.paper) + std))
            best_of_all = bool(cell.ours) and cell.competes and number(mean(cell.ours)) == top
            numbers.append(_Number(spread(cell.ours), best_of_all))
        rows.append((label, numbers))
    return rows


def _best(grid: Grid, position: int) -> str | None:
    """The best mean of a column as shown; None if there are fewer than two."""
    competing = [cells[position] for _, cells in grid.rows if cells[position].competes]
    means = [mean(cell.ours) for cell in competing if cell.ours]
    if len(means) < 2:
        return None
    return number(min(means) if grid.columns[position] in grid.lowest else max(means))


def _widths(titles: list[str], rows: list[tuple[str, list[_Number]]], stacked: bool) -> list[int]:
    """Terminal columns needed so that no number and no word of these titles is broken."""
    columns = [[numbers[i].on_lines(stacked) for _, numbers in rows] for i in range(len(titles))]
    pieces = [[*title.split(), *"\n".join(texts).split("\n")] for title, texts in zip(titles, columns, strict=True)]
    return [max(map(len, own)) for own in pieces]


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", text)


def _latex(text: str) -> str:
    return text.translate(LATEX)
